#!/bin/sh
# link.sh ARCHIVE FOLDER: links FOLDER/libprecursor.so.1 from the static library, and the symbolic link libprecursor.so.
# rustc links a cdylib with its own version script, to which no symbol version can be added; hence this script.
set -eu
archive=${1:?the static library} into=${2:?the folder for the shared library}
here=$(dirname "$0")
# nodelete: the atfork and SIGBUS handlers must stay mapped after dlclose.
${CC:-cc} -shared -o "$into/libprecursor.so.1" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,-soname,libprecursor.so.1 -Wl,--version-script="$here/libprecursor.map" \
    -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,relro,-z,now -Wl,--gc-sections -lpthread -ldl -lm -lgcc_s -lc
ln -sf libprecursor.so.1 "$into/libprecursor.so"
