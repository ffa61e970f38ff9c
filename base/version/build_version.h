// The version that this build reports.
#pragma once

namespace plumbline {

extern const char kBuildVersion[];

// Returns "0.2.0~git20261128.143005.abc1234": number, date and UTC time of the commit, commit hash.
// The version of a later commit compares greater (dpkg --compare-versions). ".dirty" at the end:
// the tree had uncommitted changes. "0.2.0~dev0": the commit is not known. Static storage.
constexpr const char* BuildVersion() { return kBuildVersion; }

}  // namespace plumbline
