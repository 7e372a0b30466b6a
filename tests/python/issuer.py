"""An issuer of tokens (JWT) as companies have one: it signs them, and serves its public keys over HTTPS.

Usage: issuer.py --out DIRECTORY

Prints `listening HOST:PORT` once its plain address for tests is there, and runs until SIGTERM. DIRECTORY/ca.pem is the
certificate that signed its server's, DIRECTORY/keys the address of its keys. At the plain address:

* POST /sign {"kid", "claims", "headers"} answers with a token; `kid` is one of ed, es, rs, weak (RSA of 1,024 bits),
  and next after /rotate. With "alg" `none` it has no signature, with `HS256` the public key is the secret.
* POST /rotate publishes the key `next` instead of `ed`.
* POST /answer {"status", "body", "repeat", "headers", "delay"} makes the next reads of the keys answer so; {} ends that.
* POST /published answers with the set of keys.
* POST /reads answers with the number of reads of the keys.
"""

import argparse
import base64
import datetime
import hashlib
import hmac
import ipaddress
import json
import pathlib
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

KEYS = {
    "ed": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
    "next": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
    "es": ("ES256", ec.generate_private_key(ec.SECP256R1())),
    "rs": ("RS256", rsa.generate_private_key(65537, 2048)),
    "weak": ("RS256", rsa.generate_private_key(65537, 1024)),
}
STATE = {"published": ["ed", "es", "rs", "weak"], "answer": {}, "reads": 0}


def certificates(directory):
    """Makes a private CA and a certificate of 127.0.0.1."""
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("ca", "issuer")]
    made = []
    for place, (name, key) in enumerate(zip(names, keys)):
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - day).not_valid_after(now + day)
        builder = builder.add_extension(x509.BasicConstraints(ca=place == 0, path_length=None), critical=True)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = keys[1].private_bytes(pem, pkcs8, serialization.NoEncryption())
    (directory / "ca.pem").write_bytes(made[0])
    (directory / "server.pem").write_bytes(made[1] + private)


def public(kid):
    """Returns a public key as a JWK."""
    alg, key = KEYS[kid]
    written = json.loads(jwt.get_algorithm_by_name(alg).to_jwk(key.public_key()))
    return {**written, "kid": kid, "use": "sig", "alg": alg}


def published():
    """Returns the set of keys."""
    return json.dumps({"keys": [public(kid) for kid in STATE["published"]]})


def sign(kid, claims, alg=None, headers=None):
    """Returns a token."""
    own, key = KEYS[kid]
    headers = {"kid": kid, **(headers or {})}
    if alg not in ("none", "HS256"):
        return jwt.encode(claims, key, algorithm=alg or own, headers=headers)
    encoded = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
    parts = [{"typ": "JWT", "alg": alg, **headers}, claims]
    signed = b".".join(encoded(json.dumps(part).encode()) for part in parts)
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    secret = key.public_key().public_bytes(*form)
    signature = b"" if alg == "none" else hmac.digest(secret, signed, hashlib.sha256)
    return (signed + b"." + encoded(signature)).decode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        STATE["reads"] += 1
        answer = STATE["answer"]
        time.sleep(answer.get("delay", 0))
        body = answer.get("body") or published()
        self.reply(body * answer.get("repeat", 1), answer.get("status", 200), answer.get("headers", {}))

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        if self.path == "/sign":
            return self.reply(sign(**given))
        if self.path == "/published":
            return self.reply(published())
        if self.path == "/rotate":
            STATE["published"] = ["next", "es", "rs"]
        if self.path == "/answer":
            STATE["answer"] = given
        self.reply(str(STATE["reads"]))

    def reply(self, text, status=200, headers={}):
        self.send_response(status)
        for name, value in {"content-length": str(len(text.encode())), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(text.encode())
        except OSError:
            pass  # The reader has had enough.

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    directory = parser.parse_args().out
    directory.mkdir(exist_ok=True)
    certificates(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    keys = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    keys.socket = context.wrap_socket(keys.socket, server_side=True)
    (directory / "keys").write_text(f"https://127.0.0.1:{keys.server_address[1]}/keys")
    threading.Thread(target=keys.serve_forever, daemon=True).start()
    plain = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("listening %s:%d" % plain.server_address, flush=True)
    plain.serve_forever()


if __name__ == "__main__":
    main()
