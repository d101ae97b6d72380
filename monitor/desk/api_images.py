"""The images that looked new, and the map of a pool, over HTTP."""

from __future__ import annotations

from starlette.responses import Response

from monitor.desk import wire_images
from monitor.desk import wire_models as models
from monitor.desk.checked_request import Ask
from monitor.desk.novel_images import (
    NovelImage,
    Wanted,
    classes_by_key,
    discovered_place,
    novel_images,
    read_no_image,
)
from monitor.desk.pool_map import Laid, neighbours, read_points
from monitor.desk.question_reasons import score_words
from monitor.desk.roles_and_tokens import Role
from monitor.people.class_pictures import pictures_of
from monitor.people.teach_images import Taught, call_no_image, teach, unteach
from monitor.store.errors import NotFound
from monitor.store.pool_images import find_in_pools
from monitor.store.records import Pool
from monitor.store.store import Transaction
from monitor.store.tables import pools

POOLS = 30
"""Pools in the list of maps: the latest whose features are kept."""

GONE = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 120">'
    b'<rect width="160" height="120" fill="#8a938e"/>'
    b'<text x="80" y="58" font-family="sans-serif" font-size="12" text-anchor="middle" '
    b'fill="#fff">not in the feed</text><text x="80" y="74" font-family="sans-serif" '
    b'font-size="12" text-anchor="middle" fill="#fff">any more</text></svg>'
)
"""Shown in place of a picture whose file has left the feed."""


def images(ask: Ask) -> wire_images.ImagesOut:
    query: wire_images.ListImages = ask.query
    found = novel_images(ask.store)
    with ask.store.reading() as tx:
        rows = classes_by_key(tx.classes.all())
    names = {key: row.name for key, row in rows.items()}
    wanted = Wanted(
        source=query.source,
        since=query.since,
        until=query.until,
        class_id=query.class_,
        least=query.least,
        most=query.most,
        by_score=query.order == "score",
        all=query.all,
        settled=query.settled,
    )
    places = found.find(wanted, read_no_image(ask.store), names)
    page = places[query.offset : query.offset + query.limit]
    return wire_images.ImagesOut(
        images=[_image(one) for one in found.read(page, rows)],
        total=len(places),
        sources=found.sources(),
    )


def _image(one: NovelImage) -> wire_images.ImageOut:
    return wire_images.ImageOut(
        id=one.id,
        source=one.source,
        image=one.image,
        captured_at=one.captured_at,
        ratio=round(one.ratio, 3),
        words=score_words(one.ratio),
        nearest_id=one.nearest_id,
        nearest=one.nearest,
        class_id=one.class_id,
        class_name=one.class_name,
        by=one.by,
        settled=one.settled,
    )


def picture(ask: Ask) -> Response:
    """The image itself, rendered from the feed."""
    place = _place(ask, ask.params["image"])
    data = ask.pictures.get(*place, large=ask.query.large)
    if data is None:
        return Response(GONE, media_type="image/svg+xml")
    # An hour: long enough to scroll back, short enough that a purge is felt.
    headers = {"cache-control": "private, max-age=3600"}
    return Response(data, media_type="image/jpeg", headers=headers)


def _place(ask: Ask, id: str) -> tuple[str, int]:
    found = novel_images(ask.store)
    if id in found:
        return found.place_of(id)
    place = ask.maps.place_of(id) or discovered_place(ask.store, id)
    if place is None:
        raise NotFound(f"image {id}: is none that the desk shows")
    return place


def around(ask: Ask) -> wire_images.AroundOut:
    """What an image looks like most: others of its pool, and pictures of the nearest class."""
    id = ask.params["image"]
    key = _name(ask, id)
    laid = _map_with(ask, key, id)
    found = novel_images(ask.store)
    with ask.store.reading() as tx:
        rows = classes_by_key(tx.classes.all())
        one = None
        if id in found:
            [one] = found.read([found._places[id]], rows)
        nearest = one.nearest_id if one else None
        if nearest is None and laid is not None:
            row = rows.get(laid.nearest[laid.ids.index(id)] or "")
            nearest = row.id if row else None
        pictures = [] if nearest is None else [e.thumbnail for e in pictures_of(tx, nearest)]
    return wire_images.AroundOut(
        alike=[] if laid is None else [_neighbour(laid, n) for n in neighbours(laid, id)],
        nearest=rows[nearest].name if nearest else None,
        pictures=pictures[:8],
        pool=None if laid is None else laid.pool_id,
    )


def _neighbour(laid: Laid, place: int) -> wire_images.NeighbourOut:
    ratio = float(laid.ratio[place])
    return wire_images.NeighbourOut(
        id=laid.ids[place],
        source=laid.names[place][0],
        image=laid.names[place][1],
        ratio=round(ratio, 3),
        words=score_words(ratio),
        nearest=laid.nearest[place],
    )


def _name(ask: Ask, id: str) -> tuple[str, str]:
    found = novel_images(ask.store)
    name = found.name_of(id) if id in found else ask.maps.name_of(id)
    if name is None:
        raise NotFound(f"image {id}: is none that the desk shows")
    return name


def _map_with(ask: Ask, key: tuple[str, str], id: str) -> Laid | None:
    """The map of the pool that the image lies in, if its features are kept."""
    by_pool = find_in_pools(ask.store, [key])
    if not by_pool:
        return None
    with ask.store.reading() as tx:
        pool, current = tx.pools.get(next(iter(by_pool))), tx.versions.current()
    laid = ask.maps.of(pool, None if current is None else current.number)
    return laid if id in laid.ids else None


def teach_images(ask: Ask) -> wire_images.TaughtOut:
    """Say what the chosen images are; it teaches like an answer."""
    body: wire_images.TeachImages = ask.body
    keys = [_name(ask, id) for id in dict.fromkeys(body.images)]
    who = ask.person.name
    if body.answer == "bad_image":
        done = call_no_image(ask.store, keys, who=who, action=body.action)
    else:
        done = teach(
            ask.store,
            keys,
            body.class_ or "",
            who=who,
            action=body.action,
            gate=ask.settings.gate,
            seed=ask.settings.run.seed,
            confirm_people=ask.settings.labels.confirm_people,
        )
    return _taught(done)


def undo_teaching(ask: Ask) -> models.SaidOut:
    body: wire_images.UndoTeaching = ask.body
    anybodys = ask.person.role >= Role.ADMIN
    words = unteach(ask.store, body.of, who=ask.person.name, action=body.action, anybodys=anybodys)
    return models.SaidOut(words=words)


def _taught(done: Taught) -> wire_images.TaughtOut:
    return wire_images.TaughtOut.model_validate(done)


def list_pools(ask: Ask) -> wire_images.PoolsOut:
    with ask.store.reading() as tx:
        return wire_images.PoolsOut(pools=[_pool(one) for one in mapped_pools(tx)])


def mapped_pools(tx: Transaction) -> list[Pool]:
    """Pools whose features are kept, the latest first."""
    from sqlalchemy import select

    rows = tx.connection.execute(
        select(pools)
        .where(pools.c.spool_dropped_at.is_(None), pools.c.size > 0)
        .order_by(pools.c.id.desc())
        .limit(POOLS)
    ).mappings()
    return [Pool(**dict(row)) for row in rows]


def _pool(pool: Pool) -> wire_images.PoolOut:
    return wire_images.PoolOut(
        id=pool.id,
        state=str(pool.state),
        size=pool.size,
        novel=pool.above,
        opened_at=pool.opened_at,
    )


def pool_map(ask: Ask) -> wire_images.MapOut:
    with ask.store.reading() as tx:
        pool, current = tx.pools.get(ask.number()), tx.versions.current()
        if pool.spool_dropped_at is not None or not pool.size:
            raise NotFound(f"pool {pool.id}: its features are not kept any more")
    laid = ask.maps.of(pool, None if current is None else current.number)
    points, settled = read_points(ask.store, laid)
    return wire_images.MapOut(
        pool=_pool(pool),
        shown=len(points),
        settled=settled,
        points=[wire_images.PointOut.model_validate(one) for one in points],
    )
