"""§1.10: filter, sample, shard and limit, in that order, deterministically."""

import json

import pytest

WAYS = ["load", "stream"]
SAMPLE_OF_FIVE = ["even-14", "odd-37", "odd-41", "odd-93", "even-98"]


def case(id, **fields):
    return {"id": id, "expected_outcome": "It works", "input": "Hello"} | fields


@pytest.fixture
def numbered(folder):
    """A hundred cases: tags odd and even, metadata n, level.deep, flag and list."""
    rows = [
        case(
            f"{'odd' if n % 2 else 'even'}-{n:02d}",
            tags=["odd" if n % 2 else "even", f"mod3-{n % 3}"],
            metadata={"n": n, "level": {"deep": str(n % 5)}, "flag": n % 4 == 0, "list": ["x", n % 7], "a.b": "dotted"},
        )
        for n in range(100)
    ]
    folder.write("d.jsonl", rows)
    folder.write("d.yaml", "dataset: d\n")
    return folder


@pytest.fixture(params=WAYS)
def select(request, numbered):
    def ids(**options):
        return getattr(numbered, request.param)("d.jsonl", **options).ids

    return ids


class TestFilter:
    @pytest.mark.parametrize(
        ("filter", "count"),
        [
            ("odd-*", 50),
            ("*-1?", 10),
            ("even-00", 1),
            ("*-[0-2]0", 3),
            ("*-0[!02468]", 5),
            ("*", 100),
            ("tag=odd", 50),
            ("tag=mod3-*", 100),
            ("tag=mod3-0", 34),
            ("metadata.n=7", 1),
            ("metadata.n=07", None),
            ("metadata.level.deep=3", 20),
            ("metadata.flag=true", 25),
            ("metadata.flag=false", 75),
            ("metadata.list=x", 100),
            ("metadata.list=6", 14),
            ("metadata.a.b=dot*", 100),
            ("metadata.none=x", None),
            ("metadata.level=x", None),
            (["odd-*", "tag=mod3-0"], 17),
            (["odd-*", "tag=even"], None),
            ("ODD-*", None),
        ],
    )
    def test_all_filters_must_hold(self, select, filter, count, numbered):
        if count is None:
            error = numbered.error("d.jsonl", filter=filter)
            assert error.headline.startswith("No case matches the filter ")
        else:
            assert len(select(filter=filter)) == count

    def test_a_filter_that_matches_nothing_is_an_error_when_streaming_too(self, numbered, command):
        with pytest.raises(Exception, match="No case matches the filter 'nothing'"):
            numbered.stream("d.jsonl", filter="nothing")
        ended = command("cases", "d.jsonl", "--filter", "nothing")
        assert (ended.code, ended.stdout) == (2, "")
        assert "Error: No case matches the filter 'nothing'" in ended.stderr

    @pytest.mark.parametrize(
        ("filter", "hint"),
        [
            ("nothing", "Ids are matched by globs, for example '*part*'"),
            ("tga=even", "'tga=' is not a filter. Use tag=x, metadata.key=x, or a glob over ids"),
            ("metdata.n=1", "'metdata.n=' is not a filter. Use tag=x, metadata.key=x"),
            ("tag=evn", "Did you mean 'even'?"),
            ("tag=zzzzzz", "Tags: even, "),
            (["odd-*", "tag=even"], "Ids are matched by globs"),
        ],
    )
    def test_a_filter_that_matches_nothing_is_an_error_with_a_hint(self, numbered, filter, hint):
        assert hint in numbered.error("d.jsonl", filter=filter).hint

    def test_an_id_with_glob_characters_matches_itself(self, folder):
        folder.write("odd.yaml", {"evalcases": [case(id) for id in ("x[1]", "x1", "a*b", "tag=x")]})
        assert folder.load("odd.yaml", filter="x[1]").ids == ["x[1]", "x1"]
        assert folder.load("odd.yaml", filter="a*b").ids == ["a*b"]

    def test_ids_select_exactly_those_cases(self, folder, command):
        path = folder.write("odd.yaml", {"evalcases": [case(id) for id in ("x[1]", "x1", "a*b", "tag=x")]})
        ended = command("cases", path, "--case", "tag=x", "--case", "x[1]", "-q")
        assert [row["id"] for row in map(json.loads, ended.stdout.splitlines())] == ["x[1]", "tag=x"]

    def test_an_id_that_no_case_has_is_an_error(self, folder, command):
        path = folder.write("odd.yaml", {"evalcases": [case("refund-one"), case("other")]})
        ended = command("cases", path, "--case", "other", "--case", "refund-on")
        assert (ended.code, ended.stdout) == (2, "")
        assert "No case has the id 'refund-on'" in ended.stderr and "Did you mean 'refund-one'?" in ended.stderr

    def test_the_order_of_the_file_is_kept(self, select):
        assert select(filter="*-0[135]") == ["odd-01", "odd-03", "odd-05"]

    def test_a_filter_matches_in_any_of_several_datasets(self, numbered):
        numbered.write("e.yaml", {"evalcases": [case("other")]})
        assert numbered.load("d.jsonl", "e.yaml", filter="other").ids == ["other"]


class TestSample:
    def test_a_sample_can_be_a_number_or_a_fraction(self, select):
        assert len(select(sample=7)) == 7
        assert len(select(sample=0.25)) == 25
        assert len(select(sample=1.0)) == 100
        assert len(select(sample=0.001)) == 1
        assert len(select(sample=1)) == 1

    def test_a_sample_larger_than_the_dataset_is_the_dataset(self, select):
        assert len(select(sample=1000)) == 100

    def test_the_same_seed_gives_the_same_cases_in_the_order_of_the_file(self, select):
        chosen = select(sample=20, seed=7)
        assert chosen == select(sample=20, seed=7)
        assert chosen == sorted(chosen, key=select().index)

    def test_another_seed_gives_other_cases(self, select):
        assert select(sample=20, seed=1) != select(sample=20, seed=2)

    def test_a_smaller_sample_is_part_of_a_larger_one(self, select):
        assert set(select(sample=10)) <= set(select(sample=11)) <= set(select(sample=0.5))

    def test_it_is_the_same_sample_in_every_process_and_version(self, select):
        assert select(sample=5) == SAMPLE_OF_FIVE

    def test_the_relative_rank_of_two_cases_does_not_depend_on_others(self, numbered):
        chosen = set(numbered.load("d.jsonl", sample=30).ids)
        odd = numbered.load("d.jsonl", filter="odd-*", sample=len([id for id in chosen if id.startswith("odd")])).ids
        assert set(odd) == {id for id in chosen if id.startswith("odd")}


class TestShard:
    @pytest.mark.parametrize("count", [1, 2, 7, 101])
    def test_shards_are_a_partition(self, select, count):
        parts = [select(shard=(index, count)) for index in range(1, count + 1)]
        together = [id for part in parts for id in part]
        assert len(together) == 100
        assert set(together) == set(select())
        assert all(part == sorted(part, key=select().index) for part in parts[:3])

    def test_an_empty_shard_is_fine(self, select):
        parts = [select(shard=(index, 500)) for index in range(1, 30)]
        assert [] in parts

    def test_a_case_stays_in_its_shard_when_others_are_added(self, numbered, select):
        before = set(select(shard=(1, 4)))
        odd = numbered.load("d.jsonl", filter="odd-*", shard=(1, 4)).ids
        assert set(odd) == {id for id in before if id.startswith("odd")}


class TestTogether:
    def test_limit_takes_the_first(self, select):
        assert select(limit=3) == ["even-00", "odd-01", "even-02"]
        assert len(select(limit=1000)) == 100

    def test_selections_are_applied_in_order(self, numbered, select):
        filtered = select(filter="odd-*")
        sampled = select(filter="odd-*", sample=20, seed=3)
        sharded = select(filter="odd-*", sample=20, seed=3, shard=(2, 3))
        limited = select(filter="odd-*", sample=20, seed=3, shard=(2, 3), limit=2)
        assert set(sampled) <= set(filtered)
        assert len(sampled) == 20
        assert sharded == [id for id in sampled if id in select(shard=(2, 3))]
        assert limited == sharded[:2]

    def test_a_sample_is_taken_over_all_datasets(self, numbered):
        numbered.write("e.yaml", {"evalcases": [case(f"e-{n}") for n in range(50)]})
        both = numbered.load("d.jsonl", "e.yaml", sample=60).ids
        assert len(both) == 60
        assert numbered.stream("d.jsonl", "e.yaml", sample=60).ids == both

    @pytest.mark.parametrize(
        "options",
        [
            {"sample": 0},
            {"sample": -1},
            {"sample": 1.5},
            {"sample": 0.0},
            {"sample": True},
            {"shard": (0, 3)},
            {"shard": (4, 3)},
            {"limit": 0},
        ],
    )
    def test_invalid_values_are_usage_errors(self, numbered, options):
        error = numbered.error("d.jsonl", **options)
        assert type(error).__name__ == "UsageError"
        assert error.exit_code == 2

    def test_the_command_takes_the_same(self, numbered, command):
        def ids(*options):
            return [printed["id"] for printed in command("cases", "d.jsonl", *options).printed]

        assert ids("-f", "odd-*", "--tag", "mod3-0") == numbered.load("d.jsonl", filter=["odd-*", "tag=mod3-0"]).ids
        assert ids("--sample", "10", "--seed", "4") == numbered.load("d.jsonl", sample=10, seed=4).ids
        assert ids("--sample", "10%") == ids("--sample", "0.1") == numbered.load("d.jsonl", sample=0.1).ids
        assert ids("--shard", "2/3", "--limit", "5") == numbered.load("d.jsonl", shard=(2, 3), limit=5).ids
        assert command("cases", "d.jsonl", "--count", "--tag", "odd").stdout == "50\n"
        for option in (("--sample", "many"), ("--shard", "2"), ("--shard", "a/b")):
            assert command("cases", "d.jsonl", *option).code == 2

    def test_nothing_selected_means_everything(self, select):
        assert len(select()) == 100


class TestRowsAndSplit:
    @pytest.fixture
    def ids(self, folder, command):
        folder.write("rows.jsonl", [{"id": f"c{n}", "expected_outcome": "x", "input": "y"} for n in range(10)])

        def selected(*options, code=0):
            ended = command("cases", "-q", "rows.jsonl", *options)
            assert ended.code == code, ended.stderr
            return [case["id"] for case in ended.printed] if not code else ended.stderr

        return selected

    def test_rows_count_from_0(self, ids):
        assert ids("--rows", "0,3-5,9") == ["c0", "c3", "c4", "c5", "c9"]

    @pytest.mark.parametrize("seed", ["0", "7"])
    def test_the_two_parts_of_a_split_are_all_cases(self, ids, seed):
        train, test = (ids("--split", f"{part}:80", "--seed", seed) for part in ("train", "test"))
        assert (len(train), len(test)) == (8, 2)
        assert sorted(train + test) == ids()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--rows", "10"), "There is no row 10: rows count from 0, and the last is 9"),
            (("--rows", "3-1"), "--rows takes positions and ranges such as 0,3-5,9"),
            (("--split", "dev:80"), "--split takes train:PERCENT or test:PERCENT"),
            (("--rows", "1", "--split", "train:80"), "--sample, --rows and --split exclude each other"),
        ],
    )
    def test_invalid_values_are_refused(self, ids, options, message):
        assert message in ids(*options, code=2)
