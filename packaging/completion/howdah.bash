# Completion of howdah's command line for bash.
_howdah() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} offered
    # bash takes "--option=value" apart.
    if [ "$word" = = ]; then
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    case $before in
        -u | --user) COMPREPLY=($(compgen -u -- "$word")); return ;;
        --io-driver) COMPREPLY=($(compgen -W 'auto io_uring epoll' -- "$word")); return ;;
        --workers | --interval | --port | --http-port | --database) return ;;
        --dir) compopt -o filenames; COMPREPLY=($(compgen -d -- "$word")); return ;;
    esac
    if [ "${COMP_WORDS[1]}" = import ]; then
        case $before in
            --from) COMPREPLY=($(compgen -W 'pgcat pgdog odyssey pg_doorman' -- "$word")); return ;;
            --out) compopt -o filenames; COMPREPLY=($(compgen -d -- "$word")); return ;;
        esac
    fi
    case ${COMP_WORDS[1]} in
        top) offered='--interval= --once --json --help' ;;
        config) offered='check convert show --json --database= --user= --environment --container' ;;
        ready) offered='--environment --container' ;;
        import) offered='--from= --out= --json --markdown --keys --help' ;;
        init) offered='--dir= --port= --http-port= --help' ;;
        *)
            offered='--daemon --quiet --reboot --user= --verbose --check --connect --environment --container --settings --man
                --metrics --workers= --io-driver= --version --help'
            if [[ $word != -* ]]; then
                compopt -o filenames
                COMPREPLY=($(compgen -f -- "$word"))
                if [ "$COMP_CWORD" = 1 ]; then
                    COMPREPLY+=($(compgen -W 'config import init ready top' -- "$word"))
                fi
                return
            fi
            ;;
    esac
    COMPREPLY=($(compgen -W "$offered" -- "$word"))
    if [[ ${COMP_WORDS[1]} = @(config|import|ready) && $word != -* ]]; then
        compopt -o filenames
        COMPREPLY+=($(compgen -f -- "$word"))
    fi
    if [[ ${COMPREPLY[0]-} == *= ]]; then
        compopt -o nospace
    fi
}
complete -F _howdah howdah
