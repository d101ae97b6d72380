"""People whom a proxy has signed in: who they are, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address, ip_network

from starlette.requests import Request

from monitor.config.desk_section import ProxySection, RoleWord
from monitor.desk.tokens import Holder, Role
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


def _believed(request: Request, proxy: ProxySection) -> bool:
    if request.client is None:
        return False
    try:
        address = ip_address(request.client.host)
    except ValueError:
        return False
    return any(address in ip_network(one) for one in proxy.addresses)
