#!/bin/sh
# Runs a command with OMP_NUM_THREADS set to the cores of the container, less one for the process that answers HTTP. A
# container with a limit of processor time (--cpus) still sees all cores of the machine: threads for all of them would
# wait for one another. $CPU_MAX is the file of the limit: microseconds, or "max", and the period in microseconds.

limit=${CPU_MAX:-/sys/fs/cgroup/cpu.max}
if [ -z "${OMP_NUM_THREADS:-}" ] && [ -r "$limit" ]; then
    read -r quota period < "$limit"
    if [ "$quota" != max ]; then
        cores=$((quota / period))
        OMP_NUM_THREADS=$((cores > 2 ? cores - 1 : 1))
        export OMP_NUM_THREADS
    fi
fi
exec "$@"
