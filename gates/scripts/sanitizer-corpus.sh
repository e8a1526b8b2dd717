#!/bin/sh
# compute-sanitizer on the corpus of the gate `checkers`: each kernel to catch under the tool that has the check, each clean
# one under all four. Prints a table in Markdown (kernel, what the simulated device makes of it, tool, what the tool makes of
# it) and how many rows are as they should be; exits with 1 when one is not.
#
#     sanitizer-corpus.sh [XTASK]       XTASK is ./xtask of a `cargo xtask dist` folder by default
#     SANITIZER=/path/to/compute-sanitizer   JOBS=8   DEVICE=cuda:0   LOGS=folder to keep each run's output in
set -eu

XTASK=${1:-./xtask}
SANITIZER=${SANITIZER:-compute-sanitizer}
DEVICE=${DEVICE:-cuda:0}
LOGS=${LOGS:-$(mktemp -d)}
export XTASK SANITIZER DEVICE LOGS

command -v "$SANITIZER" >/dev/null || { echo "no $SANITIZER: set SANITIZER" >&2; exit 2; }
mkdir -p "$LOGS"
"$XTASK" gate checkers --device sim -- list >"$LOGS/list" || { cat "$LOGS/list" >&2; exit 2; }

# One run: KERNEL TOOL. Writes one word of verdict, `clean`, `caught` or `failed`, and the tool's own summary.
cat >"$LOGS/one" <<'ONE'
#!/bin/sh
kernel=$1 tool=$2
log=$LOGS/$(echo "$kernel" | tr ':' '-').$tool
# Allocations lie side by side: without padding the first word past one is the first of another.
padding=
[ "$tool" = memcheck ] && padding="--padding 256"
# The loader asks the driver for one parameter past the last on purpose: that is no error of the kernel's.
timeout 120 "$SANITIZER" --tool "$tool" $padding --report-api-errors no "$XTASK" gate checkers --device "$DEVICE" -- "$kernel" \
    >"$log.log" 2>&1
summary=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log.log" | tail -n 1 | sed 's/^=* *//')
if ! grep -q "$kernel on ${DEVICE%%:*}" "$log.log"; then
    echo "failed the launch did not happen, see $log.log" >"$log"
    exit 0
fi
case $summary in
*'SUMMARY: 0 '*) echo "clean $summary" >"$log" ;;
*SUMMARY*) echo "caught $summary" >"$log" ;;
*) echo "failed no summary, see $log.log" >"$log" ;;
esac
ONE
chmod +x "$LOGS/one"

# kernel, verdict, tool, hangs: separated by tabs.
grep -P '\t(ends|hangs)$' "$LOGS/list" | sed 's/^ *//' >"$LOGS/table"
tab=$(printf '\t')
while IFS=$tab read -r kernel verdict tool hangs; do
    [ "$hangs" = ends ] || continue
    if [ "$verdict" = clean ]; then
        for every in memcheck initcheck racecheck synccheck; do echo "$kernel $every"; done
    elif [ "$tool" != - ]; then
        echo "$kernel $tool"
    fi
done <"$LOGS/table" | xargs -P "${JOBS:-8}" -L 1 "$LOGS/one"

echo "| kernel | simulated device | compute-sanitizer |"
echo "|---|---|---|"
right=0
wrong=0
while IFS=$tab read -r kernel verdict tool hangs; do
    if [ "$hangs" = hangs ]; then
        echo "| \`$kernel\` | $verdict | not run: it would never end |"
        continue
    fi
    if [ "$verdict" = clean ]; then
        want=clean tools="memcheck initcheck racecheck synccheck"
    elif [ "$tool" = - ]; then
        echo "| \`$kernel\` | $verdict | has no such check |"
        continue
    else
        want=caught tools=$tool
    fi
    cell=
    for every in $tools; do
        result=$LOGS/$(echo "$kernel" | tr ':' '-').$every
        read -r word said <"$result" || true
        if [ "$word" = "$want" ]; then
            right=$((right + 1))
        else
            wrong=$((wrong + 1))
            word="**$word** ($said)"
        fi
        cell="$cell${cell:+, }$every: $word"
    done
    echo "| \`$kernel\` | $verdict | $cell |"
done <"$LOGS/table"
echo
echo "$right runs as they should be, $wrong not; logs in $LOGS"
[ "$wrong" -eq 0 ] && [ "$right" -gt 0 ]
