// The envelope of a checkpoint: its maker, its state, and a checksum over both.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/archive.h"

namespace plumbline::rules {

// Returns the sealed checkpoint. `maker` is lines of text. They are equal for two engines if one
// can continue from the other's state.
std::string SealCheckpoint(const std::string& maker, const std::function<void(Archive&)>& state);
// Writes the same bytes to `sink` in pieces (Archive::Sink), so that they are never in memory as a
// whole.
void SealCheckpoint(const std::string& maker, const std::function<void(Archive&)>& state,
                    const Archive::Sink& sink);

// Reads what SealCheckpoint wrote. Returns InvalidArgument, with a message for people, if the bytes
// are not a checkpoint of this format, are damaged, were made by another maker (names the first
// line that differs), or `state` does not read all of them. Then the values that `state` read are
// invalid.
absl::Status OpenCheckpoint(std::string_view bytes, const std::string& maker,
                            const std::function<void(Archive&)>& state);

}  // namespace plumbline::rules
