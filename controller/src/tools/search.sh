# $1: file names as an expression; $2, for grep: content; $3: the one file to search in, when it is one.
export LC_ALL=C
files() {
    if [ -n "$3" ]; then
        printf '%s\0' "$3"
    elif git rev-parse --is-inside-work-tree >/dev/null 2>&1 && ! git check-ignore -q .; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . -name .git -prune -o -type f -printf '%P\0'
    fi
}
# Regular files that match, the last changed first, as "TIME NAME". In a conflict git lists a file several times.
newest() {
    files "$@" | grep -zP -e "$1" | xargs -0 -r stat --printf='%.9Y %f %n\0' -- 2>/dev/null |
        sed -zn 's/^\([^ ]*\) 8[0-9a-f]* /\1 /p' | sort -zrn | uniq -z
}
if [ -z "$2" ]; then
    newest "$@"
else
    # Bytes, so that files in other encodings are searched too; characters where the pattern has some.
    locale=C
    case $2 in *[!\ -~]*) locale=C.UTF-8 ;; esac
    LC_ALL=$locale grep -qP -e "$2" </dev/null
    [ $? -le 1 ] || exit 2
    newest "$@" | cut -z -d' ' -f2- | LC_ALL=$locale xargs -0 -r grep -nHIsZP --color=never -e "$2" --
fi
