"""The benchmark data sets: one row each, with the counts that a faithful copy has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dsrd.data.dataset import Dataset
from dsrd.data.describe import describe
from dsrd.errors import unknown

ZENODO = "https://zenodo.org/records/7213796"
MYKET = "https://github.com/erfanloghmani/myket-android-application-market-dataset"
MYKET_RAW = MYKET.replace("github.com", "raw.githubusercontent.com") + "/main/data_int_index"

DAY = 86_400.0
YEAR = 365 * DAY


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """What is known about a data set before it is read.

    `step` is the number of seconds between timestamps where the data come in snapshots, such as years; it is None
    where every event has its own time. Checksums are None where none is published.
    """

    name: str  # of the folder and the files
    title: str  # for tables
    domain: str
    bipartite: bool
    nodes: int
    events: int
    edge_dim: int  # edge features that are not all zero
    timestamps: int  # number of distinct timestamps
    duration: str
    clock: str  # resolution of the timestamps
    step: float | None = None
    home: str = ZENODO
    url: str | None = None
    sha256: str | None = None
    md5: str | None = None


# fmt: off
_ROWS = (
    DatasetSpec(
        name="wikipedia", title="Wikipedia", domain="social", bipartite=True, nodes=9_227, events=157_474,
        edge_dim=172, timestamps=152_757, duration="1 month", clock="seconds"),
    DatasetSpec(
        name="reddit", title="Reddit", domain="social", bipartite=True, nodes=10_984, events=672_447,
        edge_dim=172, timestamps=669_065, duration="1 month", clock="seconds"),
    DatasetSpec(
        name="mooc", title="MOOC", domain="interaction", bipartite=True, nodes=7_144, events=411_749,
        edge_dim=4, timestamps=345_600, duration="17 months", clock="seconds"),
    DatasetSpec(
        name="lastfm", title="LastFM", domain="interaction", bipartite=True, nodes=1_980, events=1_293_103,
        edge_dim=0, timestamps=1_283_614, duration="1 month", clock="seconds"),
    DatasetSpec(
        name="myket", title="Myket", domain="interaction", bipartite=True, nodes=17_988, events=694_121,
        edge_dim=0, timestamps=693_774, duration="197 days", clock="seconds",
        home=MYKET, url=f"{MYKET_RAW}/myket.csv"),
    DatasetSpec(
        name="enron", title="Enron", domain="social", bipartite=False, nodes=184, events=125_235,
        edge_dim=0, timestamps=22_632, duration="3 years", clock="seconds"),
    DatasetSpec(
        name="SocialEvo", title="Social Evo.", domain="proximity", bipartite=False, nodes=74, events=2_099_519,
        edge_dim=2, timestamps=565_932, duration="8 months", clock="seconds"),
    DatasetSpec(
        name="uci", title="UCI", domain="social", bipartite=False, nodes=1_899, events=59_835,
        edge_dim=0, timestamps=58_911, duration="196 days", clock="seconds"),
    DatasetSpec(
        name="Flights", title="Flights", domain="transport", bipartite=False, nodes=13_169, events=1_927_145,
        edge_dim=1, timestamps=122, duration="4 months", clock="days", step=DAY),
    DatasetSpec(
        name="CanParl", title="Can. Parl.", domain="politics", bipartite=False, nodes=734, events=74_478,
        edge_dim=1, timestamps=14, duration="14 years", clock="years", step=YEAR),
    DatasetSpec(
        name="USLegis", title="US Legis.", domain="politics", bipartite=False, nodes=225, events=60_396,
        edge_dim=1, timestamps=12, duration="12 congresses", clock="congresses", step=YEAR),
    DatasetSpec(
        name="UNtrade", title="UN Trade", domain="economics", bipartite=False, nodes=255, events=507_497,
        edge_dim=1, timestamps=32, duration="32 years", clock="years", step=YEAR),
    DatasetSpec(
        name="UNvote", title="UN Vote", domain="politics", bipartite=False, nodes=201, events=1_035_742,
        edge_dim=1, timestamps=72, duration="72 years", clock="years", step=YEAR),
    DatasetSpec(
        name="Contacts", title="Contact", domain="proximity", bipartite=False, nodes=692, events=2_426_279,
        edge_dim=1, timestamps=8_064, duration="1 month", clock="5 minutes", step=300.0),
    # Citations of diabetes papers with their years; labels are the class of the citing paper. The version with
    # dates is not offered for download, so there is no address.
    DatasetSpec(
        name="pubmed", title="PubMed", domain="citation", bipartite=False, nodes=19_717, events=44_335,
        edge_dim=0, timestamps=42, duration="44 years", clock="years", step=YEAR,
        home="https://linqs.org/datasets/#pubmed-diabetes"),
)
# fmt: on

SPECS: dict[str, DatasetSpec] = {
    row.name: replace(row, url=f"{ZENODO}/files/{row.name}.zip") if row.home == ZENODO else row for row in _ROWS
}


def find(name: str) -> DatasetSpec:
    """The data set called `name`; case, spaces and punctuation do not matter.

    >>> find("us_legis").title, find("Can. Parl.").name, find("UN Trade").events
    ('US Legis.', 'CanParl', 507497)
    """
    spec = get(name)
    if spec is None:
        raise unknown("data set", name, SPECS)
    return spec


def get(name: str) -> DatasetSpec | None:
    """Like `find`, but None for a name that is not in the catalogue."""
    return _BY_PLAIN_NAME.get(_plain(name))


def check(dataset: Dataset, spec: DatasetSpec) -> list[str]:
    """How a copy differs from the published data set, in words; empty if it does not.

    >>> copy = Dataset.from_arrays("uci", [1, 2], [2, 3], [0.0, 1.0])
    >>> check(copy, find("uci"))[0]
    'nodes: this copy has 3, the published one 1,899'
    """
    summary = describe(dataset)
    words = {
        "nodes": "nodes",
        "events": "events",
        "timestamps": "different timestamps",
        "edge_dim": "edge features",
    }
    differences = [
        f"{word}: this copy has {summary[field]:,}, the published one {getattr(spec, field):,}"
        for field, word in words.items()
        if summary[field] != getattr(spec, field)
    ]
    if dataset.bipartite != spec.bipartite:
        kinds = {True: "separate sources and targets", False: "one kind of nodes"}
        differences.append(
            f"kind: this copy has {kinds[dataset.bipartite]}, the published one {kinds[spec.bipartite]}"
        )
    return differences


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


_BY_PLAIN_NAME = {_plain(spelling): spec for spec in SPECS.values() for spelling in (spec.name, spec.title)}
