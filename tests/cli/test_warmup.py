"""`fastyolo warmup` in this process: kernels are compiled by now, so it is quick and says what decodes."""

from __future__ import annotations

from fastyolo_data.cli.main import main


def test_warmup_reports_the_decoder(capsys):
    assert main(["warmup"]) == 0
    out = capsys.readouterr().out
    assert "kernels are ready after" in out
    assert "libjpeg-turbo" in out
