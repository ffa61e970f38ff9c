// The envelope of a checkpoint: what made it, what it holds, and a checksum over both.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/archive.h"

namespace plumbline::rules {

// `maker`: lines of text, equal for two engines when one can go on from the other's state.
std::string SealCheckpoint(const std::string& maker, const std::function<void(Archive&)>& state);
// The same by pieces (Archive::Sink), so that it is never in memory as a whole.
void SealCheckpoint(const std::string& maker, const std::function<void(Archive&)>& state,
                    const Archive::Sink& sink);

// Reads what SealCheckpoint wrote. InvalidArgument, with a message for people, when the bytes are
// not a checkpoint of this format, are damaged, were made by another maker (the first line that
// differs is named), or `state` does not read all of them; what `state` read is then worthless.
absl::Status OpenCheckpoint(std::string_view bytes, const std::string& maker,
                            const std::function<void(Archive&)>& state);

}  // namespace plumbline::rules
