"""The records that cross folders: read this first.

Frozen values, each with JSON both ways. A record says what was measured or decided and, where it
matters, who said so. It decides nothing itself.

| record | says |
|---|---|
| `Budget` | bytes allowed on the device and on the host, and who said so |
| `DeviceReading` | what one device's meter said |
| `Reading` | what all meters said at one moment: devices, process, container |
| `Request` | an allocation that failed: how much, by which op |
| `Measurement` | what one function or script took in a fresh process, and how it ended |
| `Facts` | this machine: devices, allocator, limits, versions |
| `Profile` | what one training step is made of: recurrent parts; parts in depth with bytes, seconds; inputs |
| `Setting`, `Effect` | one way to use a strategy, and what that does in bytes and work |
| `Plan`, `Considered` | how a model is trained in less memory, and what else could be done |
| `Incident`, `PlanChange` | what went wrong in a run and what was done; which plan held from when on |
| `Run` | what `memfit.fit` did: steps, samples, incidents, peaks, history |
| `Estimate`, `EstimatedPart` | what a training step will take, of what it is made, and who said so |
| `Autopsy`, `Held`, `WayOut`, `Neighbour` | why memory ran out, what was alive, and the ways out |
| `Moment`, `HostReading`, `Inventory` | what a script was doing, what its meters said, what it held |
| `Forecast`, `BatchPeak` | what a step that ran out of memory takes, whole and in parts |
| `Session` | what `memfit run` saw of a script: measurement, runs, autopsy, host memory over time |
| `Watched`, `Growth`, `Leak` | what `memfit.watch` saw: how memory grew, and what makes it grow |
| `Lengths`, `LengthBin`, `LengthCut`, `Padding` | how long sequences are, and what padding them costs |

In a file, a record carries its name and the version of its form: `{"memfit": "Budget", "version":
1, ...}`. Fields that this version does not know are passed over, so that an older memfit reads what a
newer one wrote; a missing or malformed field is an error that names it.
"""

from memfit.records.autopsied import (
    Autopsy,
    BatchPeak,
    Forecast,
    Held,
    HostReading,
    Inventory,
    Moment,
    Neighbour,
    Session,
    WayOut,
)
from memfit.records.base import RECORD_VERSION, Record
from memfit.records.counted import LengthBin, LengthCut, Lengths, Padding
from memfit.records.estimated import Estimate, EstimatedPart, Source
from memfit.records.guarded import Growth, Leak, Watched
from memfit.records.measured import (
    Budget,
    DeviceFacts,
    DeviceReading,
    Facts,
    Measurement,
    Meter,
    Outcome,
    Reading,
    Request,
)
from memfit.records.planned import (
    Considered,
    DepthPart,
    Effect,
    InputPart,
    Plan,
    Profile,
    RecurrentPart,
    Setting,
)
from memfit.records.trained import Incident, PlanChange, Run

__all__ = [
    "RECORD_VERSION",
    "Autopsy",
    "BatchPeak",
    "Budget",
    "Considered",
    "DepthPart",
    "DeviceFacts",
    "DeviceReading",
    "Effect",
    "Estimate",
    "EstimatedPart",
    "Facts",
    "Forecast",
    "Growth",
    "Held",
    "HostReading",
    "Incident",
    "InputPart",
    "Inventory",
    "Leak",
    "LengthBin",
    "LengthCut",
    "Lengths",
    "Measurement",
    "Meter",
    "Moment",
    "Neighbour",
    "Outcome",
    "Padding",
    "Plan",
    "PlanChange",
    "Profile",
    "Reading",
    "Record",
    "RecurrentPart",
    "Request",
    "Run",
    "Session",
    "Setting",
    "Source",
    "Watched",
    "WayOut",
]
