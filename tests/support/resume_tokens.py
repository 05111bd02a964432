"""Resume tokens with any content. The server itself only signs positions of partition 0."""

from __future__ import annotations

from vedette.gateway.wire import resume_token
from vedette.gateway.wire.resume_token import TOKEN_VERSION, ResumeToken, TokenSigner


def sign_token(signer: TokenSigner, tenant: str, token: ResumeToken, version: int = TOKEN_VERSION) -> str:
    flags = resume_token._PENDING if token.snapshot_pending else 0
    head = resume_token._HEAD.pack(version, token.stream_key, token.epoch, flags)
    positions = [resume_token._POSITION.pack(*each) for each in sorted(token.seqs.items())]
    return signer._encode(tenant, head + b"".join(positions))
