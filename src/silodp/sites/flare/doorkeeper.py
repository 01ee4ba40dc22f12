"""Whom the server lets in: the key that was approved for a name, from one machine, until removed.

FLARE takes any certificate of the authority under its name, and the last who comes for the site. It
would let in a key that was replaced, take up a session of before a restart without looking at a
certificate, and let a second machine with the same key drive out the first. So each registration
and each sign of life is looked at here, beforehand.
"""

import hashlib
import json
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import IdentityChallengeKey, MessageHeaderKey, ReturnCode
from nvflare.lighter.utils import load_crt_chain_bytes
from nvflare.private.defs import CellMessageHeaderKeys, ClientType, InternalFLContextKey
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer

from silodp.base.documents import read_json
from silodp.base.files import write_file
from silodp.base.version import own_version
from silodp.sites.connection import (
    ASKED_AT,
    LATELY,
    SECOND,
    TIME,
    VERSION,
    Connection,
    write_connections,
)
from silodp.sites.flare.hardening import ADMIN
from silodp.sites.membership.documents import certificate_of, key_id, rsa_key
from silodp.sites.membership.members import MEMBERS_FILE, Members, changed_members, read_members

SESSIONS = "sessions.json"
_WRITE_EVERY = 1.0  # seconds
_log = logging.getLogger("silodp.coordinator")


class Doorkeeper:
    """Decides who is let in, and notes who is there.

    Attributes:
      connections: what is known of each site that came, by name.
    """

    def __init__(self, folder: Path):
        """Begins where the server before it ended.

        Args:
          folder: the federation's.
        """
        self._folder = folder
        self._lock = threading.RLock()
        self._read: tuple[Any, Members | None] = (None, None)
        # The session and the key that each site was let in with. FLARE would take up any session.
        self._sessions: dict[str, list[str]] = {}
        path = folder / SESSIONS
        if path.exists():
            self._sessions = read_json(path, remedy="remove it: sites then come anew")
        self.connections: dict[str, Connection] = {}
        # When and from where somebody came with a site's key while the site was connected.
        self._knocked: dict[str, list[Any]] = {}
        self._written = 0.0
        write_connections(folder, {})

    def why_not(self, site: str, key: str, connected: bool, address: str = "") -> str | None:
        """Why a site that has proven to hold the key is not let in; None if it is.

        Args:
          site: its name.
          key: the name of the key.
          connected: whether somebody is connected under this name already.
          address: that it says it comes from.
        """
        with self._lock:
            if not self._members().is_let_in(site, key):
                return not_let_in(site)
            if connected:
                # A second machine, or the first begun anew: that is known once the one that is
                # connected is heard again, or is not.
                self._knocked[site] = [time.time(), address]
                return (
                    f"somebody is connected as site {site!r}: asked again until that one is gone. "
                    "If it is not yours, have the coordinator replace the key (silodp site renew)"
                )
            return None

    def admin_key(self) -> str:
        """The name of the administrator's key: the one that is in this folder, and no other."""
        path = self._folder / "admin" / "startup" / "client.crt"
        return key_id(rsa_key(certificate_of(path.read_bytes(), path).public_key(), path))

    def came(self, site: str, key: str, token: str) -> None:
        """Notes a site that was let in; its renewed key is its key from now on."""
        with self._lock:
            if self._members().is_new(site, key):
                with changed_members(self._folder) as members:
                    if members.is_let_in(site, key) and members.is_new(site, key):
                        members.turn(site)
            self._sessions[site] = [_digest(token), key]
            write_file(self._folder / SESSIONS, json.dumps(self._sessions))
            self._knocked.pop(site, None)
            now, before = time.time(), self.connections.get(site, Connection())
            self.connections[site] = replace(before, since=now, heard=now)
            self._write(at_once=True)

    def goes_on(self, site: str, token: str) -> bool:
        """Whether a session that began some time ago may go on."""
        with self._lock:
            found = self._sessions.get(site)
            return (
                found is not None
                and found[0] == _digest(token)
                and self._members().is_let_in(site, found[1])
            )

    def heard(self, site: str, version: Any, asked_at: Any) -> list[Any] | None:
        """Notes a sign of life; what the site must know of a second machine with its key."""
        with self._lock:
            now = time.time()
            before = self.connections.get(site, Connection(since=now))
            second = self._knocked.pop(site, None)
            if second is not None:
                _log.warning("a second machine (%s) has the key of site %r", second[1], site)
            self.connections[site] = replace(
                before,
                heard=now,
                second=second or before.second,
                version=version[:40] if isinstance(version, str) else None,
                clock=asked_at - now if isinstance(asked_at, float) else None,
            )
            self._write(at_once=second is not None)
            return self.connections[site].second

    def gone(self, site: str) -> None:
        """Notes that a site left, or was removed."""
        with self._lock:
            if self.connections.pop(site, None) is not None:
                self._write(at_once=True)

    def _members(self) -> Members:
        """The members as they are now; read again only if the file changed."""
        about = (self._folder / MEMBERS_FILE).stat()
        stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
        if self._read[0] != stamp or self._read[1] is None:
            self._read = stamp, read_members(self._folder)
        members = self._read[1]
        assert members is not None
        return members

    def _write(self, at_once: bool = False) -> None:
        if at_once or time.time() - self._written >= _WRITE_EVERY:
            self._written = time.time()
            write_connections(self._folder, self.connections)


def not_let_in(site: str) -> str:
    """What a site hears whose key is not the one that was approved."""
    return (
        f"site {site!r} is not let in with this key: it was removed, or has another certificate "
        "since: ask the coordinator"
    )


def install(keeper: Doorkeeper) -> None:
    """Has FLARE's server ask the doorkeeper."""
    authenticate = ClientManager.authenticated_client
    beat = ClientManager.heartbeat
    leave = ClientManager.remove_client
    answer = FederatedServer.client_heartbeat

    def authenticated_client(
        manager: ClientManager, request: Any, fl_ctx: FLContext, client_type: Any
    ) -> Any:
        site = str(request.get_header(CellMessageHeaderKeys.CLIENT_NAME))
        key = _proven_key(manager, site, request, fl_ctx)
        if client_type == ClientType.ADMIN and site == ADMIN and key == keeper.admin_key():
            return authenticate(manager, request, fl_ctx, client_type)
        address = str(request.get_header(CellMessageHeaderKeys.CLIENT_IP))[:60]
        late = time.time() - LATELY
        there = [c for c in list(manager.clients.values()) if c.name == site]
        connected = any(client.last_connect_time > late for client in there)
        why = not_let_in(site)
        if key is not None and client_type == ClientType.REGULAR:
            why = keeper.why_not(site, key, connected, address)
        if why is not None or key is None:
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, why, sticky=False)
            return None
        client = authenticate(manager, request, fl_ctx, client_type)
        if client is not None:
            keeper.came(site, key, client.token)
        return client

    def heartbeat(
        manager: ClientManager, token: str, client_name: str, client_fqcn: str, fl_ctx: FLContext
    ) -> bool:
        if not keeper.goes_on(client_name, token):
            with manager.lock:
                client = manager.clients.pop(token, None)
                if client is not None:
                    manager.name_to_clients.pop(client.name, None)
                    keeper.gone(client.name)
            why = not_let_in(client_name)
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, why, sticky=False)
            return False
        return beat(manager, token, client_name, client_fqcn, fl_ctx)

    def remove_client(manager: ClientManager, token: str) -> Any:
        client = leave(manager, token)
        if client is not None:
            keeper.gone(client.name)
        return client

    def client_heartbeat(server: FederatedServer, request: Any) -> Any:
        reply = answer(server, request)
        if reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK:
            site = str(request.get_header(CellMessageHeaderKeys.CLIENT_NAME))
            second = keeper.heard(site, request.get_header(VERSION), request.get_header(ASKED_AT))
            reply.set_header(VERSION, own_version())
            reply.set_header(TIME, time.time())
            reply.set_header(SECOND, second)
        return reply

    manager_type: Any = ClientManager
    server_type: Any = FederatedServer
    manager_type.authenticated_client = authenticated_client
    manager_type.heartbeat = heartbeat
    manager_type.remove_client = remove_client
    server_type.client_heartbeat = client_heartbeat


def _proven_key(manager: ClientManager, site: str, request: Any, fl_ctx: FLContext) -> str | None:
    """The name of the key that whoever registers has proven to hold; None if of none."""
    try:
        payload = request.payload
        chain = load_crt_chain_bytes(payload.get(IdentityChallengeKey.CERT))
        verifier: Any = manager._get_id_verifier(fl_ctx)
        session: Any = fl_ctx.get_prop(InternalFLContextKey.CLIENT_REG_SESSION)
        verifier.verify_common_name(
            asserted_cn=site,
            asserter_cert=chain[0],
            signature=payload.get(IdentityChallengeKey.SIGNATURE),
            nonce=session.nonce,
            intermediate_certs=chain[1:],
        )
        return key_id(rsa_key(chain[0].public_key(), Path("the certificate")))
    except Exception as error:  # of several kinds: whoever registers may send anything
        _log.warning("what registered as site %r has proven no key: %s", site, error)
        return None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
