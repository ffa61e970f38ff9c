// See step_cache_other.cc.
#pragma once

#include <string>

#include "analysis/frame/step.h"

namespace plumbline::rules {

// The text of that file's Shared.
std::string OtherFilesShared(const SiteStep& step);

}  // namespace plumbline::rules
