// As many open files as the system allows this process: the usual soft limit is 1,024.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace plumbline {

// Raises the soft limit to the hard one, which it returns; 0 when the system will not say.
inline uint64_t RaiseOpenFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_max;
}

}  // namespace plumbline
