# What other packages may use of the configuration; `__init__.py` imports a name on first use.
from .features import (
    Hook as Hook,
    Notifier as Notifier,
    ObjectStorage as ObjectStorage,
)
from .http_settings import (
    AccessScope as AccessScope,
    HttpSettings as HttpSettings,
    HttpToken as HttpToken,
    host_problem as host_problem,
    network_of as network_of,
    public_url_problem as public_url_problem,
    token_digest as token_digest,
)
from .loading import (
    config_of as config_of,
    config_schema as config_schema,
    find_file as find_file,
    load_config as load_config,
    queue_path as queue_path,
    queue_setting as queue_setting,
)
from .model import (
    ENV as ENV,
    LOCAL as LOCAL,
    Account as Account,
    Config as Config,
    KeyNotFound as KeyNotFound,
    KeySource as KeySource,
    Profile as Profile,
    QueueSetting as QueueSetting,
    Traces as Traces,
    is_loopback as is_loopback,
)
