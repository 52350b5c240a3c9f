from .copies import held_file as held_file, local_file as local_file
from .filesystems import StorageSettings as StorageSettings, configure as configure
from .object_folder import ObjectFolder as ObjectFolder
from .threads import in_background as in_background, within as within
from .url_streams import stream as stream
