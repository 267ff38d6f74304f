/* Faults at chosen calls of the C library; loaded into a process and its children by LD_PRELOAD.

   Environment, read when the library loads and again by faults_configure():

   FAULTS_PREFIX  absolute paths with ':' between; only calls on files below one of them count
   FAULTS_STATE   a file as large as struct state, shared by all processes: counts, what happened
   FAULTS_CALLS   kinds of calls (KINDS below) with ',' between; none: calls are only counted
   FAULTS_NTH     at which call of these kinds it happens, from 1, over all processes
   FAULTS_STICKY  1: at every later call, too
   FAULTS_ACTION  error-N     the call fails with errno N
                  short       half of the bytes are read or written
                  signal-N, signal-after-N   the process gets a signal before or after the call
                  stop        the process is stopped before the call, until it gets SIGCONT

   stdio is caught at its own level: glibc's fwrite calls its internal write, not this one. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, CREATE, READ, WRITE, FLUSH, CLOSE, RENAME, SYNC, REMOVE, MKDIR, TRUNCATE, MAP, LIST,
       LOCK, KINDS };
static const char *const names[KINDS] = {
    "open", "create", "read", "write", "flush", "close", "rename", "sync", "remove", "mkdir",
    "truncate", "map", "list", "lock"};

struct state {
  uint64_t counts[KINDS];
  uint64_t chosen;  /* calls of the kinds in FAULTS_CALLS */
  uint64_t fired;
  int64_t pid, kind;  /* of the call that fired first */
  char path[1024];
};

enum action { NOTHING, ERROR, SHORT, SIGNAL, SIGNAL_AFTER, STOP };
static const char *const actions[] = {
    "", "error-", "short", "signal-", "signal-after-", "stop"};

static struct state *state;
static char prefixes[4096];
static int chosen[KINDS], sticky;
static uint64_t nth;
static enum action action;
static long argument;

#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

/* Reads the environment; of no effect on processes that run already. */
void faults_configure(void) {
  snprintf(prefixes, sizeof prefixes, "%s", variable("FAULTS_PREFIX"));
  char list[512];
  snprintf(list, sizeof list, ",%s,", variable("FAULTS_CALLS"));
  for (int kind = 0; kind < KINDS; kind++) {
    char name[32];
    snprintf(name, sizeof name, ",%s,", names[kind]);
    chosen[kind] = strstr(list, name) != NULL;
  }
  nth = strtoull(variable("FAULTS_NTH"), NULL, 10);
  sticky = atoi(variable("FAULTS_STICKY"));
  action = NOTHING;
  for (int i = ERROR; i <= STOP; i++) {
    size_t length = strlen(actions[i]);
    if (!strncmp(variable("FAULTS_ACTION"), actions[i], length)) {
      action = i; /* the last that fits: signal-after- comes behind signal- */
      argument = atol(variable("FAULTS_ACTION") + length);
    }
  }
  struct state *mapped = NULL;
  int fd = syscall(SYS_openat, AT_FDCWD, variable("FAULTS_STATE"), O_RDWR | O_CLOEXEC);
  if (fd >= 0) {
    mapped = (void *)syscall(SYS_mmap, NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
                             fd, 0);
    syscall(SYS_close, fd);
  }
  state = mapped == MAP_FAILED ? NULL : mapped;
}

__attribute__((constructor)) static void start(void) { faults_configure(); }

static int counts(const char *path) {
  const char *prefix = prefixes;
  while (*prefix) {
    size_t length = strcspn(prefix, ":");
    if (!strncmp(path, prefix, length) && (!path[length] || path[length] == '/')) return 1;
    prefix += length + (prefix[length] == ':');
  }
  return 0;
}

/* Counts a call; what has to be done to it. Signals before it happen here. */
static enum action count(int kind, const char *path) {
  __atomic_add_fetch(&state->counts[kind], 1, __ATOMIC_SEQ_CST);
  if (!chosen[kind]) return NOTHING;
  uint64_t number = __atomic_add_fetch(&state->chosen, 1, __ATOMIC_SEQ_CST);
  if (action == NOTHING || number < nth || (number > nth && !sticky)) return NOTHING;
  if (__atomic_fetch_add(&state->fired, 1, __ATOMIC_SEQ_CST) == 0) {
    state->pid = getpid();
    state->kind = kind;
    snprintf(state->path, sizeof state->path, "%s", path);
  }
  switch (action) {
    case SIGNAL: kill(getpid(), argument); return NOTHING;
    /* To this thread, which then does not get to the call; all others stop with it. */
    case STOP: syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSTOP); return NOTHING;
    case ERROR: errno = argument; return ERROR;
    default: return action;
  }
}

static enum action at_path(int kind, int folder, const char *path) {
  if (!state || !path) return NOTHING;
  int before = errno;
  char whole[2 * PATH_MAX] = "", link[64] = "/proc/self/cwd";
  if (*path != '/') {
    if (folder != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = syscall(SYS_readlink, link, whole, PATH_MAX);
    if (length < 0) length = 0;
    whole[length] = '/';
    whole[length + 1] = 0;
  }
  strncat(whole, path, sizeof whole - strlen(whole) - 1);
  enum action found = counts(whole) ? count(kind, whole) : NOTHING;
  if (found != ERROR) errno = before;
  return found;
}

static enum action at_file(int kind, int fd) {
  if (!state || fd < 0) return NOTHING;
  int before = errno;
  char link[64], path[PATH_MAX] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  syscall(SYS_readlink, link, path, sizeof path - 1);
  enum action found = counts(path) ? count(kind, path) : NOTHING;
  if (found != ERROR) errno = before;
  return found;
}

/* What a function does: counts, fails, or makes the call, on half of its bytes if it is to. */
#define CALL(kind_and_place, failed, whole, half) \
  enum action now = kind_and_place; \
  if (now == ERROR) return failed; \
  __auto_type result = now == SHORT ? (half) : (whole); \
  if (now == SIGNAL_AFTER) { \
    int saved = errno; \
    kill(getpid(), argument); \
    errno = saved; \
  } \
  return result

/* As CALL, for what closes: it is closed even if that fails. */
#define CLOSING(place, failed, call) \
  enum action now = place; \
  int saved = errno; \
  __auto_type result = call; \
  if (now == SIGNAL_AFTER) kill(getpid(), argument); \
  if (now != ERROR) return result; \
  errno = saved; \
  return failed

#define OPENER(flags) ((flags) & (O_CREAT | O_WRONLY | O_RDWR) ? CREATE : OPEN)
#define MODE(flags, last) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list rest; \
    va_start(rest, last); \
    mode = va_arg(rest, mode_t); \
    va_end(rest); \
  }

#define OPENS(name) \
  int name(const char *path, int flags, ...) { \
    REAL(name); \
    MODE(flags, flags); \
    CALL(at_path(OPENER(flags), AT_FDCWD, path), -1, real(path, flags, mode), \
         real(path, flags, mode)); \
  }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
  int name(int folder, const char *path, int flags, ...) { \
    REAL(name); \
    MODE(flags, flags); \
    CALL(at_path(OPENER(flags), folder, path), -1, real(folder, path, flags, mode), \
         real(folder, path, flags, mode)); \
  }
OPENS_AT(openat)
OPENS_AT(openat64)

#define FOPENS(name) \
  FILE *name(const char *path, const char *mode) { \
    REAL(name); \
    CALL(at_path(strpbrk(mode, "wa+") ? CREATE : OPEN, AT_FDCWD, path), NULL, real(path, mode), \
         real(path, mode)); \
  }
FOPENS(fopen)
FOPENS(fopen64)

DIR *opendir(const char *path) {
  REAL(opendir);
  CALL(at_path(LIST, AT_FDCWD, path), NULL, real(path), real(path));
}

ssize_t read(int fd, void *data, size_t size) {
  REAL(read);
  CALL(at_file(READ, fd), -1, real(fd, data, size), real(fd, data, (size + 1) / 2));
}

#define PREADS(name, offset_t) \
  ssize_t name(int fd, void *data, size_t size, offset_t offset) { \
    REAL(name); \
    CALL(at_file(READ, fd), -1, real(fd, data, size, offset), \
         real(fd, data, (size + 1) / 2, offset)); \
  }
PREADS(pread, off_t)
PREADS(pread64, off64_t)

size_t fread(void *data, size_t size, size_t items, FILE *file) {
  REAL(fread);
  CALL(at_file(READ, fileno(file)), 0, real(data, size, items, file),
       real(data, size, items, file));
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(write);
  CALL(at_file(WRITE, fd), -1, real(fd, data, size), real(fd, data, (size + 1) / 2));
}

#define PWRITES(name, offset_t) \
  ssize_t name(int fd, const void *data, size_t size, offset_t offset) { \
    REAL(name); \
    CALL(at_file(WRITE, fd), -1, real(fd, data, size, offset), \
         real(fd, data, (size + 1) / 2, offset)); \
  }
PWRITES(pwrite, off_t)
PWRITES(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int number) {
  REAL(writev);
  CALL(at_file(WRITE, fd), -1, real(fd, parts, number), real(fd, parts, (number + 1) / 2));
}

/* What stdio cannot write in full has failed; the reason is that of a full disk. */
size_t fwrite(const void *data, size_t size, size_t items, FILE *file) {
  REAL(fwrite);
  if (!size || !items) return real(data, size, items, file); /* nothing that could fail */
  enum action now = at_file(WRITE, fileno(file));
  if (now == ERROR) return 0;
  if (now == SHORT) {
    static __typeof__(fwrite) *bytes;
    bytes = real;
    size_t done = bytes(data, 1, size * items / 2, file);
    errno = ENOSPC;
    return done / size;
  }
  size_t done = real(data, size, items, file);
  if (now == SIGNAL_AFTER) kill(getpid(), argument);
  return done;
}

#define SENDS(name, offset_t) \
  ssize_t name(int to, int from, offset_t *offset, size_t size) { \
    REAL(name); \
    CALL(at_file(WRITE, to), -1, real(to, from, offset, size), \
         real(to, from, offset, (size + 1) / 2)); \
  }
SENDS(sendfile, off_t)
SENDS(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *start, int to, off64_t *target, size_t size,
                        unsigned flags) {
  REAL(copy_file_range);
  CALL(at_file(WRITE, to), -1, real(from, start, to, target, size, flags),
       real(from, start, to, target, (size + 1) / 2, flags));
}

int fflush(FILE *file) {
  REAL(fflush);
  CALL(at_file(FLUSH, file ? fileno(file) : -1), EOF, real(file), real(file));
}

int fclose(FILE *file) {
  REAL(fclose);
  CLOSING(at_file(CLOSE, fileno(file)), EOF, real(file));
}

int close(int fd) {
  REAL(close);
  CLOSING(at_file(CLOSE, fd), -1, real(fd));
}

#define SYNCS(name) \
  int name(int fd) { \
    REAL(name); \
    CALL(at_file(SYNC, fd), -1, real(fd), real(fd)); \
  }
SYNCS(fsync)
SYNCS(fdatasync)

int flock(int fd, int operation) {
  REAL(flock);
  CALL(at_file(LOCK, fd), -1, real(fd, operation), real(fd, operation));
}

#define TRUNCATES(name, offset_t) \
  int name(int fd, offset_t size) { \
    REAL(name); \
    CALL(at_file(TRUNCATE, fd), -1, real(fd, size), real(fd, size)); \
  }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

#define MAPS(name, offset_t) \
  void *name(void *place, size_t size, int access, int flags, int fd, offset_t offset) { \
    REAL(name); \
    CALL(at_file(MAP, fd), MAP_FAILED, real(place, size, access, flags, fd, offset), \
         real(place, size, access, flags, fd, offset)); \
  }
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)

int rename(const char *from, const char *to) {
  REAL(rename);
  CALL(at_path(RENAME, AT_FDCWD, to), -1, real(from, to), real(from, to));
}

int renameat(int from_folder, const char *from, int folder, const char *to) {
  REAL(renameat);
  CALL(at_path(RENAME, folder, to), -1, real(from_folder, from, folder, to),
       real(from_folder, from, folder, to));
}

int link(const char *from, const char *to) {
  REAL(link);
  CALL(at_path(RENAME, AT_FDCWD, to), -1, real(from, to), real(from, to));
}

#define REMOVES(name) \
  int name(const char *path) { \
    REAL(name); \
    CALL(at_path(REMOVE, AT_FDCWD, path), -1, real(path), real(path)); \
  }
REMOVES(unlink)
REMOVES(rmdir)
REMOVES(remove)

int unlinkat(int folder, const char *path, int flags) {
  REAL(unlinkat);
  CALL(at_path(REMOVE, folder, path), -1, real(folder, path, flags), real(folder, path, flags));
}

int mkdir(const char *path, mode_t mode) {
  REAL(mkdir);
  CALL(at_path(MKDIR, AT_FDCWD, path), -1, real(path, mode), real(path, mode));
}

int mkdirat(int folder, const char *path, mode_t mode) {
  REAL(mkdirat);
  CALL(at_path(MKDIR, folder, path), -1, real(folder, path, mode), real(folder, path, mode));
}
