// See step_cache_other.cc.
#pragma once

#include <string>

#include "analysis/frame/step.h"

namespace plumbline::analysis {

// Returns the text of the Shared of that file.
std::string OtherFilesShared(const SiteStep& step);

}  // namespace plumbline::analysis
