"""Certificates of a Ray cluster without key usage and identifiers, which gRPC does not need."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


def authority(*addresses, folder):
    """Write ca.crt of a new authority, and node.crt and node.key of nodes at some addresses."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in ("ca", "node")]
    ca, node = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    (folder / "ca.crt").write_bytes(certificate(names[0], ca, names[0], ca))
    (folder / "node.crt").write_bytes(certificate(names[1], node, names[0], ca, addresses))
    plain = serialization.NoEncryption()
    key = node.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "node.key").write_bytes(key)


def certificate(name, key, issuer, signer, addresses=()):
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=not addresses, path_length=None), critical=True)
    )
    if addresses:
        names = [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return made.sign(signer, hashes.SHA256()).public_bytes(PEM)
