#!/usr/bin/env bash
# fetch_s2ag.sh FOLDER [DATASET...]: the latest release of Semantic Scholar. The key is in S2_API_KEY; needs curl and jq.
# Run again, it fetches the files that are missing. mdcr corpus refuses the folder until all are there.
set -euo pipefail
folder=$1
api=${S2_API:-https://api.semanticscholar.org/datasets/v1}
shift
test $# -gt 0 || set -- papers abstracts citations
export folder
mkdir -p "$folder/.fetching"

get() {
  file=$folder/$1/$(basename "${2%%\?*}")
  test -e "$file" && return
  curl -fsSL --retry 4 -o "$folder/.fetching/${file##*/}" "$2"
  gzip -t "$folder/.fetching/${file##*/}"
  mv "$folder/.fetching/${file##*/}" "$file"
}
export -f get

for dataset in "$@"; do
  mkdir -p "$folder/$dataset"
  curl -fsS -H "x-api-key: $S2_API_KEY" "$api/release/latest/dataset/$dataset" | jq -r '.files[]' |
    xargs -P 4 -I {} bash -c 'set -e; get "$1" "$2"' _ "$dataset" {}
done
rm -r "$folder/.fetching"
