"""Constants of 2020 that programs compared with: commands of plans, formats of tensors, words of the HTTP grid.

Only the commands of plans are used here. The grid's words are kept because programs name them; its servers are not
part of this library.
"""


class PLAN_CMDS:
    """What a `PlanCommandMessage` may ask for."""

    FETCH_PLAN = "fetch_plan"
    FETCH_PROTOCOL = "fetch_protocol"


class TENSOR_SERIALIZATION:
    """Ways of writing tensors that a worker could choose between; this library has one of its own."""

    TORCH = "torch"
    NUMPY = "numpy"
    TF = "tf"
    ALL = "all"


class GATEWAY_ENDPOINTS:
    """Paths of the grid's gateway."""

    SEARCH_TAGS = "/search"
    SEARCH_MODEL = "/search-model"
    SEARCH_ENCRYPTED_MODEL = "/search-encrypted-model"
    SELECT_MODEL_HOST = "/choose-model-host"
    SELECT_ENCRYPTED_MODEL_HOSTS = "/choose-encrypted-model-host"


class REQUEST_MSG:
    """Requests to a node of the grid."""

    TYPE_FIELD = "type"
    GET_ID = "get-id"
    CONNECT_NODE = "connect-node"
    HOST_MODEL = "host-model"
    RUN_INFERENCE = "run-inference"
    DELETE_MODEL = "delete-model"
    LIST_MODELS = "list-models"
    AUTHENTICATE = "authentication"


class RESPONSE_MSG:
    """Fields of the answers of a node of the grid."""

    NODE_ID = "id"
    INFERENCE_RESULT = "prediction"
    MODELS = "models"
    ERROR = "error"
    SUCCESS = "success"
