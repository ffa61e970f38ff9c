// Raises the limit of open files as far as the system allows: the usual soft limit is 1,024.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace plumbline {

// Raises the soft limit to the hard one, and the hard one to `wanted` if permitted. Returns the
// number of files that may be open then; 0 if the system does not report it.
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
