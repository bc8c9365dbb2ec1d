"""Models' names as labels of metrics."""

from proxy.observing.names import MAX_NAMES, Names


def test_several_processes_and_their_successors_name_a_hundred_models_together(tmp_path):
    file = tmp_path / "models"
    one, other = Names(file), Names(file)
    half = MAX_NAMES // 2
    told = [one.label(f"a/{number}") for number in range(half)]
    told += [other.label(f"b/{number}\n") for number in range(MAX_NAMES)]
    assert len(set(told) - {"other"}) == MAX_NAMES
    assert told[-1] == "other"
    successor = Names(file)
    assert successor.label("a new one") == "other"
    assert successor.label("b/0\n") == "b/0\n"


def test_where_the_others_cannot_be_heard_a_process_counts_its_own(tmp_path):
    names = Names(tmp_path / "gone" / "models")
    told = {names.label(f"{number}") for number in range(2 * MAX_NAMES)}
    assert len(told) == MAX_NAMES + 1
