"""The handlers of requests that write: read body and query, carry the write out, and answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from kubesim.apiserver import bodies, bootstrap, codec, errors, request_selectors, subresources
from kubesim.apiserver.auth import Authenticator
from kubesim.apiserver.bodies import Expected, read_decoded, read_delete_options, read_object, read_patch, write_options
from kubesim.apiserver.deletion import DeleteOptions, Deleter
from kubesim.apiserver.objects import Objects, Write
from kubesim.apiserver.requests import Target, add_warnings, json_response, object_response
from kubesim.apiserver.resources import Resource
from kubesim.apiserver.store import Stored
from kubesim.apiserver.watching import continue_after

Json = dict[str, Any]

# A DELETE of these is answered with the object instead of a Status, as by the real server.
_RETURNS_DELETED = frozenset({"pods", "serviceaccounts"})
_ORPHANS_LEFT = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_BINDING = Expected("v1", "Binding")
_EVICTION = Expected("policy/v1", "Eviction", "policy/v1beta1")
_TOKEN_REQUEST = Expected("authentication.k8s.io/v1", "TokenRequest")


class Writing:
    """Answers create, update, patch and delete, and the subresources that write."""

    def __init__(self, objects: Objects, deleter: Deleter, authenticator: Authenticator) -> None:
        self._objects = objects
        self._deleter = deleter
        self._authenticator = authenticator
        self._evictor = subresources.Evictor(objects, deleter)
        self._binder = subresources.Binder(objects)

    async def create(self, request: web.BaseRequest, target: Target) -> web.Response:
        """POST to a collection."""
        write, raw = write_options(request), await request.read()
        body = read_object(request, raw, Expected.of(target.resource))
        with _with_warnings(write):
            stored = self._objects.create(target.resource, target.namespace, body, write)
        return _written(request, target.resource, stored, write, 201)

    async def update(self, request: web.BaseRequest, target: Target) -> web.Response:
        """PUT of an object or of a part of it."""
        write, raw = write_options(request, target.subresource), await request.read()
        body = read_object(request, raw, Expected.of(target.resource))
        with _with_warnings(write):
            stored, created = self._objects.replace(target.resource, target.namespace, target.name, body, write)
        return _written(request, target.resource, stored, write, 201 if created else 200)

    async def patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        """PATCH of an object or of a part of it."""
        raw = await request.read()
        bodies.check_patch_type(request)
        write = write_options(request, target.subresource)
        kind, patch = read_patch(request, raw)
        with _with_warnings(write):
            stored = self._objects.patch(target.resource, target.namespace, target.name, kind, patch, write)
        return _written(request, target.resource, stored, write, 200)

    async def part(self, request: web.BaseRequest, target: Target) -> web.Response:
        """PUT or PATCH of a status: the body is the whole object, but only its status is written."""
        return await (self.patch if request.method == "PATCH" else self.update)(request, target)

    # Deletion --------------------------------------------------------------------------------------------------

    async def delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        """DELETE of one object."""
        resource, options = target.resource, await _delete_options(request)
        stored = self._objects.get(resource, target.namespace, target.name)
        if resource.plural == "namespaces" and stored.name in bootstrap.PROTECTED_NAMESPACES:
            raise errors.forbidden(resource, stored.name, "this namespace may not be deleted")
        remaining, is_gone = self._deleter.delete(resource, stored, options)
        if not is_gone or resource.plural in _RETURNS_DELETED:
            response = object_response(request, resource, remaining)
            if resource.plural == "jobs" and options.propagation is None and options.orphans is None:
                add_warnings(response, [_ORPHANS_LEFT])
            return response
        details: Json = {"name": stored.name, "kind": resource.plural, "uid": stored.obj["metadata"]["uid"]}
        if resource.group:
            details["group"] = resource.group
        return json_response({**subresources.SUCCESS, "details": details})

    async def delete_collection(self, request: web.BaseRequest, target: Target) -> web.Response:
        """DELETE of a collection, answered with what was there."""
        resource, options = target.resource, await _delete_options(request)
        predicate, limit = (
            request_selectors.selector_predicate(request.query, resource),
            int(request.query.get("limit") or 0),
        )
        store = self._objects.store
        everything = store[resource.qualified].all(target.namespace)
        found = [item for item in everything if predicate is None or predicate(item.obj)]
        meta = {"resourceVersion": str(store.rv)}
        if limit and len(found) > limit:
            found = found[:limit]
            meta["continue"] = continue_after(store.rv, found[-1], target.namespace)
        for item in found:
            self._deleter.delete(resource, item, options)
        return web.Response(body=codec.FullForm(resource).encode_list(found, meta), content_type="application/json")

    # Subresources ----------------------------------------------------------------------------------------------

    async def bind(self, request: web.BaseRequest, target: Target) -> web.Response:
        """POST to pods/binding."""
        write = write_options(request)
        body = read_decoded(request, await request.read(), _BINDING, write)
        return json_response(self._binder.bind(target.namespace, target.name, body, write), 201)

    async def evict(self, request: web.BaseRequest, target: Target) -> web.Response:
        """POST to pods/eviction."""
        write = write_options(request)
        body = read_decoded(request, await request.read(), _EVICTION, write)
        return json_response(self._evictor.evict(target.namespace, target.name, body, write), 201)

    async def token(self, request: web.BaseRequest, target: Target) -> web.Response:
        """POST to serviceaccounts/token."""
        write = write_options(request)
        body = read_decoded(request, await request.read(), _TOKEN_REQUEST, write)
        made = subresources.request_token(self._objects, self._authenticator, target.namespace, target.name, body)
        return json_response(made, 201)


def _written(request: web.BaseRequest, resource: Resource, stored: Stored, write: Write, status: int) -> web.Response:
    """Return the written object, with the warnings that came up."""
    response = object_response(request, resource, stored, status)
    add_warnings(response, write.warnings)
    return response


@contextmanager
def _with_warnings(write: Write) -> Iterator[None]:
    """Add the warnings that came up so far to a refusal within the block."""
    try:
        yield
    except errors.StatusError as error:
        error.warnings = write.warnings
        raise


async def _delete_options(request: web.BaseRequest) -> DeleteOptions:
    """Return the options in the body or, without a body, in the query. Raises StatusError 400, 415 or 422."""
    raw = await request.read()
    return (
        DeleteOptions.of(read_delete_options(request, raw)) if raw.strip() else DeleteOptions.from_query(request.query)
    )
