// A type with the same name as one in step_cache_test.cc, local to its file.
#include "tests/analysis/frame/step_cache_other.h"

#include <string>

namespace plumbline::analysis {
namespace {

struct Shared {
  std::string text;
};

}  // namespace

std::string OtherFilesShared(const SiteStep& step) {
  return step.cache.Get<Shared>([] { return std::make_shared<Shared>(Shared{"other"}); })->text;
}

}  // namespace plumbline::analysis
