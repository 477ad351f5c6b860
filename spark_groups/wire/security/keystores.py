"""Reads key stores and trust stores: PEM and PKCS #12, from files or texts, and JKS files.

Every function raises ValueError with the reason, and never repeats the content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12KeyAndCertificates,
    load_pkcs12,
)

STORE_BYTES_MAX: Final = 16 * 1024 * 1024
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
_MAGIC: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_DER_NULL: Final = b"\x05\x00"


def read_store(path: str, store_type: str | None) -> tuple[str, bytes]:
    """Read a store and return its type, one of STORE_TYPES, with its bytes.

    Args:
        store_type: The configured type; None to detect it.
    """
    if store_type is not None and store_type.upper() not in STORE_TYPES:
        raise ValueError(_unsupported(path, store_type))
    try:
        with Path(path).open("rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > STORE_BYTES_MAX:
        raise ValueError(f"{path} has more than {STORE_BYTES_MAX} bytes: is this a store?")
    seen = _MAGIC.get(content[:4]) or ("PEM" if b"-----BEGIN " in content else "PKCS12")
    if store_type is not None and store_type.upper() != seen:
        raise ValueError(f"{path} is not {store_type.upper()} but looks like {seen}")
    if seen not in STORE_TYPES:
        raise ValueError(_unsupported(path, seen))
    return seen, content


def _unsupported(path: str, store_type: str) -> str:
    return (
        f"store type {store_type!r} is not supported: use {', '.join(STORE_TYPES)}. To convert the"
        f" file: {_conversion(path)}"
    )


def _conversion(path: str) -> str:
    return (
        f"`keytool -importkeystore -srckeystore {path}"
        f" -destkeystore {Path(path).with_suffix('.p12')} -deststoretype PKCS12`"
    )


def trusted_from_pem(text: str) -> str:
    """Return the certificates of a PEM text."""
    found = [block for kind, block in _blocks(text) if kind == "CERTIFICATE"]
    if not found:
        raise ValueError("there is no certificate in it")
    return _checked(found)


def trusted_from_pkcs12(content: bytes, password: str | None) -> str:
    """Return the certificates of a PKCS #12 store."""
    store = _load_pkcs12(content, password)
    found = [each.certificate for each in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate)
    if not found:
        raise ValueError("there is no certificate in it")
    return _pem(found)


def identity_from_pem(chain: str, key: str, password: str | None) -> tuple[str, str]:
    """Return the certificate chain and the key, the latter without a password.

    Args:
        chain: A text with certificates, the client's own first.
        key: A text with the key; may be the same one.
    """
    certificates = [block for kind, block in _blocks(chain) if kind == "CERTIFICATE"]
    keys = [block for kind, block in _blocks(key) if kind.endswith("PRIVATE KEY")]
    if not certificates or len(keys) != 1:
        raise ValueError(
            f"it contains {len(certificates)} certificates and {len(keys)} keys: the client's"
            " certificate, those up to its authority, and one key are required"
        )
    try:
        loaded = load_pem_private_key(keys[0].encode(), password.encode() if password else None)
    except TypeError:
        problem = "has no password, but one is set" if password else "requires a password"
        raise ValueError(f"the key {problem}: kafka.ssl.key.password") from None
    except ValueError:
        raise ValueError("the key cannot be read: is kafka.ssl.key.password right?") from None
    return _identity(_checked(certificates), loaded)


def identity_from_pkcs12(content: bytes, password: str | None) -> tuple[str, str]:
    """Return the certificate chain and the key of a PKCS #12 store."""
    store = _load_pkcs12(content, password)
    if store.key is None or store.cert is None:
        raise ValueError("it contains no key with a certificate")
    others = (each.certificate for each in store.additional_certs)
    return _identity(_pem([store.cert.certificate, *others]), store.key)


def trusted_from_jks(path: str, content: bytes, password: str | None) -> str:
    """Return the certificates of a Java key store; without a password, its integrity is unchecked.

    Args:
        path: For messages.
    """
    store = _load_jks(path, content, password)
    found = [each.cert for each in store.certs.values()]
    found += [
        private_key.cert_chain[0][1]
        for private_key in store.private_keys.values()
        if private_key.cert_chain
    ]
    if not found:
        raise ValueError("there is no certificate in it")
    return _pem_of_der(found)


def identity_from_jks(
    path: str, content: bytes, password: str | None, key_password: str | None
) -> tuple[str, str]:
    """Return the certificate chain and the key of a Java key store.

    Args:
        path: For messages.
        password: The password of the store.
        key_password: The password of the key; None for that of the store.
    """
    if password is None:
        raise ValueError("a Java key store requires a password: kafka.ssl.keystore.password")
    keys = _load_jks(path, content, password).private_keys
    if len(keys) != 1:
        held = f"contains {len(keys)} keys ({', '.join(sorted(keys))})" if keys else "has no key"
        raise ValueError(f"it {held}: one key with its certificates is required")
    ((_, entry),) = keys.items()
    try:
        _add_parameters(entry)
        entry.decrypt(password if key_password is None else key_password)
        loaded = load_der_private_key(entry.pkey_pkcs8, None)
    except Exception:
        # The library lets errors of others through, such as those of its ASN.1 decoder.
        raise ValueError("the key cannot be read: is kafka.ssl.key.password right?") from None
    return _identity(_pem_of_der(each for _, each in entry.cert_chain), loaded)


def _add_parameters(entry: Any) -> None:
    """Add the empty parameters of a key's encryption: Java 17.0.21 omits them, and jks needs them.

    Args:
        entry: An encrypted key of `jks`.
    """
    from pyasn1.codec.der import decoder, encoder  # noqa: PLC0415
    from pyasn1_modules.rfc5208 import EncryptedPrivateKeyInfo  # noqa: PLC0415

    info, _ = decoder.decode(entry._encrypted, asn1Spec=EncryptedPrivateKeyInfo())
    algorithm = info["encryptionAlgorithm"]
    if not algorithm["parameters"].hasValue():
        algorithm["parameters"] = _DER_NULL
        entry._encrypted = encoder.encode(info)


def _load_jks(path: str, content: bytes, password: str | None) -> Any:
    """Return the store as `jks.KeyStore`, with its keys encrypted."""
    try:
        # An extra, which only those with such files install.
        import jks  # noqa: PLC0415
    except ImportError:
        raise ValueError(
            f"{path} is a Java key store (JKS): pip install 'spark-groups[jks]' where the driver"
            f" runs, or convert it with {_conversion(path)}"
        ) from None
    try:
        return jks.KeyStore.loads(content, password, try_decrypt_keys=False)
    except jks.KeystoreSignatureException:
        raise ValueError("the password is wrong, or the file was changed") from None
    except Exception:
        raise ValueError("it is not a Java key store that can be read") from None


def _pem_of_der(certificates: Iterable[bytes]) -> str:
    try:
        return _pem(x509.load_der_x509_certificate(certificate) for certificate in certificates)
    except ValueError:
        raise ValueError("a certificate in it cannot be read") from None


def _identity(chain: str, key: PrivateKeyTypes) -> tuple[str, str]:
    public = x509.load_pem_x509_certificates(chain.encode())[0].public_key()
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*form) != key.public_key().public_bytes(*form):
        raise ValueError("the key does not match the first certificate")
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return chain, plain.decode()


def _load_pkcs12(content: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        return load_pkcs12(content, password.encode() if password is not None else None)
    except (ValueError, TypeError):
        raise ValueError("it is not PKCS12, or the password is wrong") from None


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return kinds and blocks of a PEM text, which properties may have joined into one line."""
    return [
        (kind, f"-----BEGIN {kind}-----\n{_wrapped(body)}\n-----END {kind}-----\n")
        for kind, body in _BLOCK.findall(text.replace("\\n", "\n"))
    ]


def _wrapped(body: str) -> str:
    """Return the lines of a block; one with headers stays unchanged."""
    if ":" in body:
        return body.strip()
    letters = re.sub(r"\s", "", body)
    return "\n".join(letters[at : at + 64] for at in range(0, len(letters), 64))


def _checked(blocks: Iterable[str]) -> str:
    try:
        return _pem(x509.load_pem_x509_certificates("".join(blocks).encode()))
    except ValueError:
        raise ValueError("a certificate in it cannot be read") from None


def _pem(certificates: Iterable[x509.Certificate]) -> str:
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)
