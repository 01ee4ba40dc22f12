"""Why the coordinator cannot be reached, found by trying: FLARE itself only says that it cannot."""

import contextlib
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from silodp.base.errors import SilodpError
from silodp.sites.membership.site import certificate_at, read_membership, why_not_valid

_SECONDS = 3.0
# OpenSSL's numbers for what is wrong with a certificate.
_NOT_YET, _EXPIRED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64


def why_unreachable(folder: Path) -> str | None:
    """Why the site in this folder cannot reach its coordinator, and what to do; None if it can."""
    try:
        own, certificate = read_membership(folder), certificate_at(folder)
        why = None if certificate is None else why_not_valid(certificate)
    except SilodpError as error:
        return str(error).rstrip(".")
    if why is not None:
        return f"the certificate of this site {why}: correct the clock, or renew it (site renew)"
    host, port, startup = own.server.host, own.server.port, folder / "kit" / "startup"
    at = f"{host}, port {port}"
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as plain:
            context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
            context.load_cert_chain(startup / "client.crt", startup / "client.key")
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(plain, server_hostname=host) as secure:
                # With TLS 1.3 the server's word on our certificate comes after the handshake.
                secure.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    secure.recv(1)
        return None
    except socket.gaierror:
        return f"the name {host} is not known here: check the name service"
    except ConnectionRefusedError:
        return f"nothing listens at {at}: is the coordinator's server started?"
    except ssl.SSLCertVerificationError as error:
        return _wrong_certificate(error.verify_code, at)
    except ssl.SSLError as error:
        return (
            f"the server at {at} refuses this site's certificate ({error.reason}): compare the "
            "clocks, or renew the certificate (site renew)"
        )
    except TimeoutError:
        return f"{at} does not answer: check the network, and what filters it"
    except OSError as error:
        return f"{at} cannot be reached ({error.strerror or error}): check the network"


def _wrong_certificate(code: int, at: str) -> str:
    clock = f"this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if code == _EXPIRED:
        return (
            f"the certificate of the server at {at} has expired, and {clock}: correct the clock, "
            "or have the coordinator renew it (federation renew)"
        )
    if code == _NOT_YET:
        return f"the certificate of the server at {at} is not valid yet, and {clock}: correct it"
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        return (
            f"the server at {at} has a certificate for another name: have the coordinator renew it "
            "with this one (federation renew --host)"
        )
    return f"the server at {at} is that of another authority: ask the coordinator"
