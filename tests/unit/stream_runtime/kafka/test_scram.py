"""SCRAM against the example of RFC 7677."""

from __future__ import annotations

import pytest

from tidemark.stream_runtime.kafka.confluent.scram import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_the_messages_of_the_standard_s_example() -> None:
    scram = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.proof(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ValueError, match="could not prove that it knows the password"):
        scram.check(b"v=AAAA")


def test_an_answer_to_somebody_else_is_refused() -> None:
    with pytest.raises(ValueError, match="does not belong to this login"):
        ScramClient("SCRAM-SHA-256", "user", "pencil", "other").proof(SERVER_FIRST)


def test_names_are_escaped() -> None:
    assert ScramClient("SCRAM-SHA-512", "a=b,c", "p", "x").first() == b"n,,n=a=3Db=2Cc,r=x"
