"""Configs: every mistake gets one sentence, every config survives a round trip."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.config import Config, build, load
from orchestrator.errors import UserError

MISTAKES = [
    (["foo=1"], "config: foo: there is no such key"),
    (["local.lrr=1"], "did you mean 'lr'?"),
    (["resources.actor=1"], "no such key; did you mean 'actors'? valid: "),
    (["algorithm=fedprx"], "there is no 'fedprx'; did you mean 'fedprox'?"),
    (
        ["algorithm.name=fedprox", "algorithm.mu=-1"],
        "algorithm.mu: must be greater than or equal to 0",
    ),
    (["algorithm=fedprox", "algorithm.mue=1"], "did you mean 'mu'?"),
    (["data.partition.alfa=1"], "did you mean 'alpha'?"),
    (["data.partition.alpha=x"], "data.partition.alpha: must be a valid number"),
    (["cohort=40"], "cohort 40 is larger than the 30 clients"),
    (["cohort=1.5"], "at most 1.0"),
    (["rounds=0"], "rounds: must be greater than or equal to 1"),
    (["algorithm=fedadam", "server_optimizer=sgd"], "defined by the server optimizer 'adam'"),
    (["algorithm=scaffold", "local.optimizer=adam"], "set local.optimizer to sgd"),
    (["algorithm=scaffold", "sampler={name: weighted, replace: true}"], "distinct clients"),
    (["algorithm=synchronous", "cohort=3"], "needs all 30 clients"),
    (["algorithm=synchronous", "local.steps=2"], "--set local.steps=1"),
    (["local.steps=1", "local.epochs=2"], "either steps or epochs"),
    (["resources.gpus_per_actor=1.5"], "must be whole"),
    (["resources.actors=1", "resources.clients_per_actor=1"], "either actors or clients_per_actor"),
    (["name=a/b"], "name: "),
    (["name='[/x]'"], "name: "),
    (
        ["algorithm=drfa", "local.steps=5", "non_finite=drop"],
        "cannot go on without a dropped client",
    ),
    (["algorithm=drfa"], "set local.steps"),
    (["algorithm={name: drfa, replace: false}", "local.steps=5"], "needs algorithm.floor above 0"),
    (["algorithm={name: drdm, floor: 5e-324}", "local.steps=5"], "needs algorithm.floor above 0"),
    (["algorithm=drdm", "local.steps=5", "server_optimizer=adam"], "has its own server step"),
    (["algorithm=afl", "aggregator=weighted_mean"], "averages in its own way"),
    (["algorithm=clustered", "cohort=3"], "needs all 30 clients"),
    (["algorithm={name: drdsgd, graph: rng}"], "did you mean 'ring'?"),
    (
        ["algorithm={name: fednova, mu: 1}", "local.optimizer={name: sgd, momentum: 0.9}"],
        "momentum or a proximal term",
    ),
    (
        [
            "algorithm=fednova",
            "local.optimizer={name: sgd, momentum: 0.9}",
            "local.optimizer_state=keep",
        ],
        "set local.optimizer_state to reset",
    ),
    (
        ["algorithm={name: afl, uncertainty: {name: groups, lists: [[0, 1], [2]]}}"],
        "each of the clients 0 to 29 once",
    ),
    (["algorithm={name: afl, uncertainty: {name: cvar, alpha: 0}}"], "alpha"),
    (["algorithm={name: drfa, gamma: {start: -1}}", "local.steps=5"], "gamma"),
    (["seed=-1"], "seed: "),
    (["data=3"], "data: "),
    (["model.name="], "model: "),
    (["resources.client_timeout=.inf"], "resources.client_timeout: "),
    (["resources.on_timeout=drop"], "on_timeout: drop needs a client_timeout"),
]


@pytest.mark.parametrize(
    ("changes", "message"), MISTAKES, ids=lambda v: v[0] if isinstance(v, list) else ""
)
def test_mistakes(changes, message):
    with pytest.raises(UserError) as caught:
        load(None, changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["- a", "3", "a: [", "a: b: c", "\x00"])
def test_files_that_are_no_configs(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UserError):
        load(path)
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "absent.yaml")


@pytest.mark.parametrize("setting", ["cohort", "=3", "a.b=[", ""])
def test_settings_that_are_none(setting):
    with pytest.raises(UserError, match="--set"):
        load(None, [setting])


def test_a_key_that_is_there_twice(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("rounds: 3\nlocal: {lr: 0.5}\nlocal: {epochs: 2}\n")
    with pytest.raises(UserError, match=r"the key 'local' is there twice.* line 3"):
        load(path)
    path.write_text(
        "data: &a {clients: 7}\nenergy: &b {<<: {snr_db: 3}, snr_db: 5.0}\nlocal: {<<: {lr: 0.5}, lr: 0.25}\n"
    )
    assert load(path).local.lr == 0.25


def test_yaml_cannot_run_code(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("name: !!python/object/apply:os.getcwd []")
    with pytest.raises(UserError, match="cannot read"):
        load(path)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedadam", "fedprox", "synchronous", "scaffold"])
def test_round_trip(algorithm):
    config = load(None, [f"algorithm={algorithm}", "data.partition={name: zipf, sigma: 0.5}"])
    assert build(yaml.safe_load(config.dump())) == config


def test_an_algorithms_defaults_give_way_to_the_user():
    assert load(None, ["algorithm=fedavgm"]).server_optimizer.momentum == 0.9
    mine = load(None, ["algorithm=fedavgm", "server_optimizer.lr=0.5"]).server_optimizer
    assert (mine.lr, mine.momentum) == (0.5, 0.9)
    assert (
        load(None, ["algorithm=fedavgm", "server_optimizer.momentum=0.5"]).server_optimizer.momentum
        == 0.5
    )
    assert load(None, ["algorithm=synchronous"]).cohort_size == 30


def test_cohort_as_number_and_as_fraction():
    assert load(None, ["cohort=3"]).cohort_size == 3
    assert load(None, ["cohort=0.5"]).cohort_size == 15
    assert load(None, ["cohort=1"]).cohort_size == 1
    assert load(None, ["cohort=1.0"]).cohort_size == 30


KEYS = st.sampled_from([*Config.model_fields, "nonsense", "name"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["iid", "fedavg"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
@example({"data": {"name": True}})
@example({"model": {"name": []}})
@example({"plugins": [""]})
@example({"plugins": ["a\nb", "\n.py"]})
@example({"plugins": ["\n.py"]})
@example({"plugins": ["\0.py"]})
@example({"plugins": ["..\ud800"]})
@example({"plugins": [{"name": "", "file": "/"}]})
@example({"plugins": [{"name": "a", "sha256": "../a"}]})
@example({"plugins": [{"name": "a", "sha256": "a", "file": "a", "kept": True}]})
def test_anything_is_a_config_or_one_sentence(raw):
    try:
        config = build(raw)
    except UserError as error:
        message = str(error)
    else:
        message = None
        assert build(yaml.safe_load(config.dump())) == config
    assert message is None or message.startswith(("config: ", "plugins: "))
    assert message is None or "\n" not in message


def test_options_without_a_name_belong_to_the_algorithm_s_own_part():
    config = load(None, ["algorithm=fedadamw", "server_optimizer.lr=0.5"])
    assert (config.server_optimizer.name, config.server_optimizer.lr) == ("adamw", 0.5)
    assert load(None, ["server_optimizer.lr=0.5"]).server_optimizer.name == "sgd"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"algorithm": {"mu": 0.1}}, "algorithm.mu: there is no such key of fedavg; .*fedprox"),
        ({"round_end": {"theta": 2}}, "no such key of fixed; fda, fda_async would have it"),
        ({"axes": {"local.lr": [0.1]}}, "axes: .* a sweep's: fedorch sweep FILE"),
    ],
)
def test_a_key_of_something_else_is_told_whose_it_is(raw, message):
    with pytest.raises(UserError, match=message):
        build(raw)


def test_a_text_for_a_section_is_none_of_its_options(tmp_path):
    (tmp_path / "c.yaml").write_text("local: {lr: 0.1}\n")
    with pytest.raises(UserError, match="local: must be a valid dictionary"):
        load(tmp_path / "c.yaml", ["local=sgd"])


def test_what_a_setting_leaves_out_is_told(tmp_path, capsys):
    """Another attack had another fraction, without a word."""
    file = tmp_path / "c.yaml"
    file.write_text("attack: {name: same_value, fraction: 0.4, tau: 3}")
    assert load(file, ["attack=alie"]).attack.fraction == 0.2
    said = " ".join(capsys.readouterr().err.split())
    assert "leaves out what was said of same_value (fraction 0.4); --set attack.name=alie" in said
    for setting in ("attack=none", "attack.fraction=0.3", "attack={name: alie}"):
        load(file, [setting])
    assert load(file, ["attack={name: alie, fraction: 0.4}"]).attack.fraction == 0.4
    assert load(file, ["attack=alie", "attack.fraction=0.4"]).attack.fraction == 0.4
    assert not capsys.readouterr().err


def test_a_word_for_an_option_is_looked_for_beside_it(tmp_path):
    with pytest.raises(
        UserError, match=r"no such key of sgd.*; did you mean server_optimizer.lr\? valid: "
    ) as told:
        load(None, ["server_optimizer.rate=0.1"])
    assert str(told.value).count("did you mean") == 1
