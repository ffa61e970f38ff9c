// As many open files as the system allows this process: the usual soft limit is 1,024.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace plumbline {

// Raises the soft limit to the hard one, and that to `wanted` where we may. How many files may be
// open then; 0 when the system will not say.
inline uint64_t RaiseOpenFiles(uint64_t wanted = 0) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  if (files.rlim_max < wanted) {
    const rlimit more{wanted, wanted};
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) return wanted;
  }
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 0;
}

}  // namespace plumbline
