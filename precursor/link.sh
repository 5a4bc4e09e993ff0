#!/bin/sh
# link.sh ARCHIVE FOLDER: makes FOLDER/libprecursor.so.1 of the static library, and the link libprecursor.so to it.
# rustc links a cdylib with a version script of its own, which no symbol version can be added to; so this does it.
set -eu
archive=${1:?the static library} into=${2:?the folder to put it in}
here=$(dirname "$0")
# Never unloaded (nodelete): its atfork and SIGBUS handlers stay where the process expects them after dlclose.
${CC:-cc} -shared -o "$into/libprecursor.so.1" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,-soname,libprecursor.so.1 -Wl,--version-script="$here/libprecursor.map" \
    -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,relro,-z,now -Wl,--gc-sections -lpthread -ldl -lm -lgcc_s -lc
ln -sf libprecursor.so.1 "$into/libprecursor.so"
