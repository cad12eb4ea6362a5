#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The newest PyTorch: Debian sid's (python3-torch), in the sid of .ci/sid-pythons.sh. For `make test-all`.
#
#   .ci/sid-torch.sh DIR      prints an interpreter that can import it, made once; like the others in DIR it runs outside of any chroot
#
# Exit code 0; or 3 if this is impossible here: one line on stderr says why.
set -u
[ $# -eq 1 ] || { echo "usage: .ci/sid-torch.sh DIR" >&2; exit 2; }
fail() {
    echo "sid-torch: $*" >&2
    exit 3
}
[ -e "$1/complete" ] || fail "there is no Debian sid in $1 (.ci/sid-pythons.sh makes one)"
dir=$(cd "$1" && pwd) || exit 3
python=$dir/usr/outside/python3-torch
[ -x "$python" ] && { echo "$python"; exit 0; }
[ -z "${PROBING_NO_FETCH:-}" ] || fail "not fetched"
exec 9>"$dir/lock"
flock 9 || fail "another one is at work"
[ -x "$python" ] && { echo "$python"; exit 0; }
env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$dir" \
    apt-get -q -y install --no-install-recommends python3-torch </dev/null >>"$dir/log" 2>&1 ||
    fail "apt-get could not install python3-torch: $(tail -1 "$dir/log")"
version=$(chroot "$dir" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "it has no python3"
[ -x "$dir/usr/outside/python$version" ] || fail "there is no usr/outside/python$version"
# Some libraries have search paths of their own, which hide the interpreter's.
lib=$dir/usr/lib/x86_64-linux-gnu
cat >"$python.new" <<END
#!/bin/sh
exec env LD_LIBRARY_PATH=$lib:$dir/lib:$dir/usr/lib:$dir/lib/x86_64-linux-gnu:$lib/blas:$lib/lapack $dir/usr/outside/python$version "\$@"
END
chmod +x "$python.new"
"$python.new" -c 'import torch' >>"$dir/log" 2>&1 </dev/null || fail "import torch failed there: $(tail -1 "$dir/log")"
mv "$python.new" "$python"
echo "$python"
