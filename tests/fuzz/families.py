"""All families, by name."""

from __future__ import annotations

from tests.fuzz.commands import Commands
from tests.fuzz.compositions import Compositions
from tests.fuzz.configs import Configs, Texts
from tests.fuzz.datafiles import DataFiles
from tests.fuzz.family import Family
from tests.fuzz.folders import Folders
from tests.fuzz.meanings import Meanings
from tests.fuzz.plans import Plans
from tests.fuzz.programs import Programs
from tests.fuzz.schedules import Schedules
from tests.fuzz.tables import Tables

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Configs(),
        Texts(),
        Compositions(),
        Meanings(),
        Folders(),
        DataFiles(),
        Commands(),
        Plans(),
        Programs(),
        Schedules(),
        Tables(),
    )
}
