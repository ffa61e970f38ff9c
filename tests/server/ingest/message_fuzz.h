// Damages messages by their meaning: sets fields to problematic values, for any message type. A
// random generator with the same seed gives the same messages.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <random>
#include <string>

namespace plumbline::test {

// Changes one to eight fields of `message` or of messages in it: sets, clears, adds or repeats.
void DamageFields(google::protobuf::Message* message, std::mt19937& random);

// Fills `message` with random fields, `depth` levels of messages deep.
void FillByChance(google::protobuf::Message* message, std::mt19937& random, int depth = 4);

// Flips, cuts, repeats and inserts bytes.
std::string DamageBytes(std::string bytes, std::mt19937& random);

// Returns `often` in every run; `in_long_runs` with PLUMB_LONG=1.
int Rounds(int often, int in_long_runs);

}  // namespace plumbline::test
