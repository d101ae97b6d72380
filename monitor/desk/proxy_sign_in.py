"""Sign-in by a trusted proxy: who the people are, and which role they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network

from starlette.requests import Request

from monitor.config.desk_section import DeskSection, ProxySection, RoleWord
from monitor.desk.roles_and_tokens import Holder, Role
from monitor.people.class_names import clean_name
from monitor.people.errors import BadName


def person_of_proxy(request: Request, proxy: ProxySection) -> Holder | None:
    """Whom the proxy names; None if it is none of ours, or whoever comes has no role.

    The address that counts is the one that the connection comes from, never one from a header.
    """
    if proxy.user_header is None or not _believed(request, proxy):
        return None
    named = request.headers.getlist(proxy.user_header)
    if len(named) != 1:  # two of them mean that somebody slipped one past the proxy
        return None
    try:
        name = clean_name(named[0])
    except BadName:
        return None
    groups: list[str] = []
    if proxy.groups_header is not None:
        for value in request.headers.getlist(proxy.groups_header):
            groups += [one.strip() for one in value.split(",") if one.strip()]
    role = role_of(name, groups, proxy.roles, proxy.default_role)
    return None if role is None else Holder(name, role, "")


def role_of(
    name: str, groups: Iterable[str], roles: Mapping[str, RoleWord], default: RoleWord | None
) -> Role | None:
    """The highest role that a name or one of the groups has.

    >>> role_of("ada", ["ops"], {"ops": "admin", "ada": "reader"}, None)
    <Role.ADMIN: 3>
    >>> role_of("bo", [], {"ops": "admin"}, None) is None
    True
    """
    found = [Role.named(roles[one]) for one in (name, *groups) if one in roles]
    if default is not None:
        found.append(Role.named(default))
    return max(found, default=None)


def is_proxy(address: str, desk: DeskSection) -> bool:
    """Whether connections from there are a proxy's, which carries many people.

    The addresses have a default, so they count only where something says that there is a proxy.
    """
    if desk.proxy.user_header is None and desk.address is None:
        return False
    return _among(address, desk.proxy)


def address_of(request: Request, desk: DeskSection) -> str:
    """Where a request comes from: what a proxy of ours says, else where the connection does.

    Each proxy adds the address that it was reached from at the end, so the last one that is no
    proxy of ours is the one that can be believed.
    """
    direct = request.client.host if request.client else "?"
    if not is_proxy(direct, desk):
        return direct
    listed = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
    for one in reversed([word.strip() for word in listed]):
        if not _is_address(one):
            break
        if not _among(one, desk.proxy):
            return one
    return direct


def _believed(request: Request, proxy: ProxySection) -> bool:
    return request.client is not None and _among(request.client.host, proxy)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _among(address: str, proxy: ProxySection) -> bool:
    return _is_address(address) and any(
        ip_address(address) in ip_network(one) for one in proxy.addresses
    )
