return free(ARGV[2])
