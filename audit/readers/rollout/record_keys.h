// Finds the keys of a rollout file's first records. Each reader recognises its files by them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

using RecordKeys = std::set<std::string, std::less<>>;

// Returns the keys at the top level of each of the file's first records, without repetitions: of
// the first 64 KiB, and at least one of the first MiB. `head` is the file's first
// Reader::kHeadBytes, or all of it. If a record is truncated, returns its keys up to there. Caches
// the last result per thread, because all readers of rollouts look at one file before the next. The
// reference is valid until the thread's next call.
const std::vector<RecordKeys>& KeysOfRecords(std::string_view path, std::string_view head);

}  // namespace plumbline::audit
