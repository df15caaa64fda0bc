from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IdPB(_message.Message):
    __slots__ = ("number", "text")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class TensorPB(_message.Message):
    __slots__ = ("dtype", "shape", "data", "requires_grad", "is_parameter")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_GRAD_FIELD_NUMBER: _ClassVar[int]
    IS_PARAMETER_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    requires_grad: bool
    is_parameter: bool
    def __init__(self, dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., requires_grad: _Optional[bool] = ..., is_parameter: _Optional[bool] = ...) -> None: ...

class NothingPB(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ComplexPB(_message.Message):
    __slots__ = ("real", "imag")
    REAL_FIELD_NUMBER: _ClassVar[int]
    IMAG_FIELD_NUMBER: _ClassVar[int]
    real: float
    imag: float
    def __init__(self, real: _Optional[float] = ..., imag: _Optional[float] = ...) -> None: ...

class SequencePB(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ValuePB]
    def __init__(self, items: _Optional[_Iterable[_Union[ValuePB, _Mapping]]] = ...) -> None: ...

class EntryPB(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: ValuePB
    value: ValuePB
    def __init__(self, key: _Optional[_Union[ValuePB, _Mapping]] = ..., value: _Optional[_Union[ValuePB, _Mapping]] = ...) -> None: ...

class MappingPB(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[EntryPB]
    def __init__(self, entries: _Optional[_Iterable[_Union[EntryPB, _Mapping]]] = ...) -> None: ...

class SlicePB(_message.Message):
    __slots__ = ("start", "stop", "step")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    start: ValuePB
    stop: ValuePB
    step: ValuePB
    def __init__(self, start: _Optional[_Union[ValuePB, _Mapping]] = ..., stop: _Optional[_Union[ValuePB, _Mapping]] = ..., step: _Optional[_Union[ValuePB, _Mapping]] = ...) -> None: ...

class SizePB(_message.Message):
    __slots__ = ("op", "left", "right")
    OP_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    op: str
    left: ValuePB
    right: ValuePB
    def __init__(self, op: _Optional[str] = ..., left: _Optional[_Union[ValuePB, _Mapping]] = ..., right: _Optional[_Union[ValuePB, _Mapping]] = ...) -> None: ...

class ValuePB(_message.Message):
    __slots__ = ("none", "truth", "integer", "real", "complex", "text", "ellipsis", "dtype", "device", "layout", "memory_format", "slot", "size", "tuple", "list", "mapping", "slice")
    NONE_FIELD_NUMBER: _ClassVar[int]
    TRUTH_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    COMPLEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ELLIPSIS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    none: NothingPB
    truth: bool
    integer: int
    real: float
    complex: ComplexPB
    text: str
    ellipsis: NothingPB
    dtype: str
    device: str
    layout: str
    memory_format: str
    slot: int
    size: SizePB
    tuple: SequencePB
    list: SequencePB
    mapping: MappingPB
    slice: SlicePB
    def __init__(self, none: _Optional[_Union[NothingPB, _Mapping]] = ..., truth: _Optional[bool] = ..., integer: _Optional[int] = ..., real: _Optional[float] = ..., complex: _Optional[_Union[ComplexPB, _Mapping]] = ..., text: _Optional[str] = ..., ellipsis: _Optional[_Union[NothingPB, _Mapping]] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., layout: _Optional[str] = ..., memory_format: _Optional[str] = ..., slot: _Optional[int] = ..., size: _Optional[_Union[SizePB, _Mapping]] = ..., tuple: _Optional[_Union[SequencePB, _Mapping]] = ..., list: _Optional[_Union[SequencePB, _Mapping]] = ..., mapping: _Optional[_Union[MappingPB, _Mapping]] = ..., slice: _Optional[_Union[SlicePB, _Mapping]] = ...) -> None: ...

class InputPB(_message.Message):
    __slots__ = ("shape", "dtype", "others")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    others: FitPB
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ..., others: _Optional[_Union[FitPB, _Mapping]] = ...) -> None: ...

class FitPB(_message.Message):
    __slots__ = ("sizes", "ranks", "dtypes")
    SIZES_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    ranks: RanksPB
    dtypes: DtypesPB
    def __init__(self, sizes: _Optional[_Iterable[int]] = ..., ranks: _Optional[_Union[RanksPB, _Mapping]] = ..., dtypes: _Optional[_Union[DtypesPB, _Mapping]] = ...) -> None: ...

class RanksPB(_message.Message):
    __slots__ = ("ranks",)
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class DtypesPB(_message.Message):
    __slots__ = ("dtypes",)
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    dtypes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, dtypes: _Optional[_Iterable[str]] = ...) -> None: ...

class KeywordPB(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: ValuePB
    def __init__(self, name: _Optional[str] = ..., value: _Optional[_Union[ValuePB, _Mapping]] = ...) -> None: ...

class OperationPB(_message.Message):
    __slots__ = ("version", "name", "args", "kwargs", "results", "without_grad")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    KWARGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_GRAD_FIELD_NUMBER: _ClassVar[int]
    version: int
    name: str
    args: _containers.RepeatedCompositeFieldContainer[ValuePB]
    kwargs: _containers.RepeatedCompositeFieldContainer[KeywordPB]
    results: ValuePB
    without_grad: bool
    def __init__(self, version: _Optional[int] = ..., name: _Optional[str] = ..., args: _Optional[_Iterable[_Union[ValuePB, _Mapping]]] = ..., kwargs: _Optional[_Iterable[_Union[KeywordPB, _Mapping]]] = ..., results: _Optional[_Union[ValuePB, _Mapping]] = ..., without_grad: _Optional[bool] = ...) -> None: ...

class ProgramPB(_message.Message):
    __slots__ = ("signature", "inputs", "state", "constants", "operations", "outputs")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    signature: _containers.RepeatedCompositeFieldContainer[ValuePB]
    inputs: _containers.RepeatedCompositeFieldContainer[InputPB]
    state: int
    constants: _containers.RepeatedCompositeFieldContainer[TensorPB]
    operations: _containers.RepeatedCompositeFieldContainer[OperationPB]
    outputs: ValuePB
    def __init__(self, signature: _Optional[_Iterable[_Union[ValuePB, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[InputPB, _Mapping]]] = ..., state: _Optional[int] = ..., constants: _Optional[_Iterable[_Union[TensorPB, _Mapping]]] = ..., operations: _Optional[_Iterable[_Union[OperationPB, _Mapping]]] = ..., outputs: _Optional[_Union[ValuePB, _Mapping]] = ...) -> None: ...

class MemoryEntryPB(_message.Message):
    __slots__ = ("name", "position")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    name: str
    position: int
    def __init__(self, name: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class MemoryPB(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[MemoryEntryPB]
    def __init__(self, entries: _Optional[_Iterable[_Union[MemoryEntryPB, _Mapping]]] = ...) -> None: ...

class TrainedGroupPB(_message.Message):
    __slots__ = ("options", "parameters", "memory")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    options: MappingPB
    parameters: _containers.RepeatedScalarFieldContainer[int]
    memory: _containers.RepeatedCompositeFieldContainer[MemoryPB]
    def __init__(self, options: _Optional[_Union[MappingPB, _Mapping]] = ..., parameters: _Optional[_Iterable[int]] = ..., memory: _Optional[_Iterable[_Union[MemoryPB, _Mapping]]] = ...) -> None: ...

class TrainingStepPB(_message.Message):
    __slots__ = ("optimizer", "groups", "started")
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    optimizer: str
    groups: _containers.RepeatedCompositeFieldContainer[TrainedGroupPB]
    started: int
    def __init__(self, optimizer: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[TrainedGroupPB, _Mapping]]] = ..., started: _Optional[int] = ...) -> None: ...

class StatePB(_message.Message):
    __slots__ = ("version", "tensors", "names", "buffers")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorPB]
    names: _containers.RepeatedScalarFieldContainer[str]
    buffers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorPB, _Mapping]]] = ..., names: _Optional[_Iterable[str]] = ..., buffers: _Optional[_Iterable[int]] = ...) -> None: ...

class PlaceHolderPB(_message.Message):
    __slots__ = ("version", "id", "tags", "description", "expected", "child")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: IdPB
    tags: _containers.RepeatedScalarFieldContainer[str]
    description: str
    expected: InputPB
    child: TensorPB
    def __init__(self, version: _Optional[int] = ..., id: _Optional[_Union[IdPB, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., expected: _Optional[_Union[InputPB, _Mapping]] = ..., child: _Optional[_Union[TensorPB, _Mapping]] = ...) -> None: ...

class PlanPB(_message.Message):
    __slots__ = ("version", "id", "name", "program", "state", "training", "tags", "description")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: IdPB
    name: str
    program: ProgramPB
    state: StatePB
    training: TrainingStepPB
    tags: _containers.RepeatedScalarFieldContainer[str]
    description: str
    def __init__(self, version: _Optional[int] = ..., id: _Optional[_Union[IdPB, _Mapping]] = ..., name: _Optional[str] = ..., program: _Optional[_Union[ProgramPB, _Mapping]] = ..., state: _Optional[_Union[StatePB, _Mapping]] = ..., training: _Optional[_Union[TrainingStepPB, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ...) -> None: ...

class StepPB(_message.Message):
    __slots__ = ("worker", "is_open", "plan", "plan_id")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    worker: IdPB
    is_open: bool
    plan: PlanPB
    plan_id: IdPB
    def __init__(self, worker: _Optional[_Union[IdPB, _Mapping]] = ..., is_open: _Optional[bool] = ..., plan: _Optional[_Union[PlanPB, _Mapping]] = ..., plan_id: _Optional[_Union[IdPB, _Mapping]] = ...) -> None: ...

class ProtocolPB(_message.Message):
    __slots__ = ("version", "id", "steps", "tags", "description")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    version: int
    id: IdPB
    steps: _containers.RepeatedCompositeFieldContainer[StepPB]
    tags: _containers.RepeatedScalarFieldContainer[str]
    description: str
    def __init__(self, version: _Optional[int] = ..., id: _Optional[_Union[IdPB, _Mapping]] = ..., steps: _Optional[_Iterable[_Union[StepPB, _Mapping]]] = ..., tags: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ...) -> None: ...
