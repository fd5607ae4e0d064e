"""What the GPU benchmark's table says of a check that took a step apart."""

from laptime.records import CheckRecord, PiecesCheck, RunRecord


def test_a_step_that_was_taken_apart_has_its_errors_by_pieces_in_the_table(script):
    pieces = PiecesCheck(
        loss_error=0.001,
        loss_tolerance=0.01,
        gradient_error=0.03,
        gradient_tolerance=0.02,
        place="layer3.1.conv2.weight",
        error=0.3,
        tolerance=0.25,
    )
    check = CheckRecord(
        klass="numeric",
        loss_baseline=2.3,
        loss_variant=2.4,
        loss_error=0.043,
        loss_tolerance=0.03,
        gradient_error=0.2,
        gradient_tolerance=0.48,
        pieces=pieces,
        passed=False,
    )
    (said,) = script("gpu_table").checks({"cuda-optimized": [RunRecord(status="wrong", check=check)]})
    assert "REFUSED loss 4.3e-02/3.0e-02, gradient 2.0e-01/4.8e-01, in pieces loss 1.0e-03/1.0e-02" in said
    assert said.endswith("gradient 3.0e-02/2.0e-02, layer3.1.conv2.weight 3.0e-01/2.5e-01")
