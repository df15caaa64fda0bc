"""Operations that may run on data which their caller may not see: what they are, what they return, how they run.

    admission = admit("aten.mm.default", (spec_of(a), spec_of(b)))   # or raises what the caller reads
    outcome = run(admission, (a, b))                                 # never raises because of values

`admit` sees specs and public values; `run` sees tensors and answers nothing. The table of operations is in `rows/`.
Imports `core`.
"""

from syft.core.lazy import submodules_on_demand as _on_demand
from syft.operations.admission import Admission as Admission
from syft.operations.admission import Result as Result
from syft.operations.admission import admit as admit
from syft.operations.running import Outcome as Outcome
from syft.operations.running import run as run
from syft.operations.table import all_rows as all_rows
from syft.operations.table import is_admitted as is_admitted

__getattr__ = _on_demand("syft.operations")
