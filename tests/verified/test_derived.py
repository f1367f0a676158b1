"""Keys and tags that follow from a key, a public label and a protected part of it."""

import pytest

from securevfl.verified import FlowError, World, decide


def two(program):
    """Verdict for client 0 on what client 1, who has a key, sends it of its input x."""
    world = World(2**31 - 1)
    one, other = world.party(0), world.party(1)
    x, k = world.secret(1, "x", (2, 2)), other.key()
    program(world, one, other, x, k)
    return decide(world, {0}).verdict


def test_a_tag_tells_nothing_without_the_key():
    assert two(lambda w, one, other, x, k: other.send(0, "t", other.tag(k, "a", [x]))) == "PROVED"


def test_tags_of_two_values_under_one_label_are_not_proved():
    def program(w, one, other, x, k):
        other.send(0, "t", other.tag(k, "a", [x]))
        other.send(0, "t", other.tag(k, "a", [x + x]))

    assert two(program) == "NOT PROVED"


def test_a_tag_with_the_key_tells_its_value():
    def program(w, one, other, x, k):
        other.send(0, "t", other.tag(k, "a", [x]))
        other.send(0, "k", k)

    assert two(program) in ("VIOLATED", "NOT PROVED")


@pytest.mark.parametrize(("shown", "verdict"), [(False, "PROVED"), (True, "VIOLATED")])
def test_a_stream_of_a_derived_key_hides_who_lacks_it(shown, verdict):
    def program(w, one, other, x, k):
        seed = other.derived_key(k, "seed", [x])
        other.send(0, "m", x + other.prf(seed, "share", 2, 2))
        other.send(0, "s", seed if shown else other.derived_key(k, "another", [x]))

    assert two(program) == verdict


def test_a_derived_key_may_be_told_that_follows_from_what_it_masks():
    """A holder's share of a step is its seed; the others' shares follow from it and the step."""

    def program(w, one, other, x, k):
        seed = other.derived_key(k, "seed", [x])
        own = one.prf(other.send(0, "seed", seed), "share", 2, 2)
        assert own.shape == (2, 2)

    assert two(program) == "PROVED"


def test_a_tag_of_the_keys_own_stream_is_proved_where_the_labels_differ():
    def program(w, one, other, x, k):
        other.send(0, "t", other.tag(k, "a", [x + other.prf(k, "b", 2, 2, of=[x])]))

    assert two(program) == "PROVED"


def test_one_key_has_labels_with_a_protected_part_or_without():
    def program(w, one, other, x, k):
        other.prf(k, "a", 2)
        other.tag(k, "b", [x])

    with pytest.raises(FlowError, match="with and without a protected part"):
        two(program)


def test_a_stream_and_a_key_of_one_label_are_refused():
    def program(w, one, other, x, k):
        other.prf(k, "a", 2, of=[x])
        other.derived_key(k, "a", [x])

    with pytest.raises(FlowError, match="in two forms"):
        two(program)


def test_a_mask_by_a_label_that_has_the_masked_value_in_it():
    def program(w, one, other, x, k):
        other.send(0, "m", x + other.prf(k, "a", 2, 2, of=[x]))

    assert two(program) == "PROVED"
