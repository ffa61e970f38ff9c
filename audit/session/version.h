// The version every program and report of this build states.
#pragma once

namespace plumbline::audit {

inline constexpr const char* kVersion = PLUMBLINE_VERSION;

}  // namespace plumbline::audit
