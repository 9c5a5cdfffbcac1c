"""Certificates for tests, made by the openssl command."""

import subprocess


def openssl(*args, folder):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, cwd=folder)


def make_authority(folder, name):
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
    extensions = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign,cRLSign")
    openssl("req", "-x509", *new_key, "-out", f"{name}.pem", "-subj", f"/CN={name}", *extensions, folder=folder)
    return folder / f"{name}.pem"


def make_certificate(folder, name, authority, *, alternative, subject=None):
    """A certificate with its key in one file, as a PEM store has them."""
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key")
    openssl("req", *new_key, "-out", f"{name}.csr", "-subj", subject or f"/CN={name}", folder=folder)
    (folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
    signing = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-extfile", f"{name}.ext")
    openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt", folder=folder)
    both = folder / f"{name}.pem"
    both.touch(0o600)
    both.write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    return both
