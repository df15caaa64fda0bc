"""Which frameworks are installed. torch is the one that is served; TF Encrypted is only looked for."""

import importlib.util
import logging

logger = logging.getLogger(__name__)

tfe_spec = importlib.util.find_spec("tf_encrypted")
tfe_available = tfe_spec is not None
torch_spec = importlib.util.find_spec("torch")
torch_available = torch_spec is not None
