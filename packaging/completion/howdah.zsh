#compdef howdah
# Completion of howdah's command line for zsh.
case ${words[2]} in
    top)
        shift words
        (( CURRENT-- ))
        _arguments \
            '--interval=[how often to look]:seconds:' \
            '--once[look once, print and exit]' \
            '--json[print as JSON]' \
            '(-h --help)'{-h,--help}'[show the options and keys]' \
            ':connection string of the console:'
        ;;
    config)
        shift words
        (( CURRENT-- ))
        _arguments \
            '--json[with check: print as JSON]' \
            '--database=[with show: for this database]:database:' \
            '--user=[with show: for this user]:user:' \
            '--environment[no file: variables have the configuration]' \
            '--container[a mounted file, or else --environment]' \
            '1:command:(check convert show)' \
            ':configuration:_files'
        ;;
    ready)
        shift words
        (( CURRENT-- ))
        _arguments \
            '--environment[no file: variables have the configuration]' \
            '--container[a mounted file, or else --environment]' \
            ':configuration:_files'
        ;;
    import)
        shift words
        (( CURRENT-- ))
        _arguments \
            '--from=[whose files they are]:pooler:(pgcat pgdog odyssey pg_doorman)' \
            '--out=[where to write]:folder:_files -/' \
            '--json[print the report as JSON]' \
            '--markdown[print the report as Markdown]' \
            '--keys[print what becomes of each key]' \
            '(-h --help)'{-h,--help}'[show the options]' \
            '*:file:_files'
        ;;
    init)
        shift words
        (( CURRENT-- ))
        _arguments \
            '--dir=[where to write both files]:folder:_files -/' \
            '--port=[where clients will connect]:port:' \
            '--http-port=[where metrics will be]:port:' \
            '(-h --help)'{-h,--help}'[show the options]' \
            ':connection string of PostgreSQL:'
        ;;
    *)
        _arguments \
            '(-d --daemon)'{-d,--daemon}'[run in the background]' \
            '(-q --quiet)'{-q,--quiet}'[print nothing to standard error]' \
            '(-R --reboot)'{-R,--reboot}'[take over from a running process]' \
            '(-u --user)'{-u+,--user=}'[become this system user]:user:_users' \
            '*'{-v,--verbose}'[log more]' \
            '--check[read the configuration, say what is wrong, and exit]' \
            '--connect[with --check: connect and log in, too]' \
            '--environment[no file: variables have the configuration]' \
            '--container[a mounted file, or else --environment]' \
            '--settings[print the reference of all settings]' \
            '--man[print it as a manual page]' \
            '--metrics[print the reference of all metrics]' \
            '--workers=[number of worker threads]:number:' \
            '--io-driver=[how to talk to the kernel]:driver:(auto io_uring epoll)' \
            '(-V --version)'{-V,--version}'[show the version]' \
            '(-h --help)'{-h,--help}'[show the options]' \
            '1: :{ _alternative "commands:command:((config\:say\ what\ a\ configuration\ is import\:read\ the\ files\ of\ another\ pooler init\:write\ a\ configuration ready\:ask\ whether\ it\ takes\ clients top\:watch\ a\ running\ pooler))" "files:configuration:_files" }'
        ;;
esac
