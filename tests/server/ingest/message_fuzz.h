// Messages damaged by their meaning: fields set to the values that code stumbles over, whatever the
// message is. What a random generator of one seed makes is always the same.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <random>
#include <string>

namespace plumbline::test {

// Changes one to eight fields of `message` or of messages in it: sets, clears, adds or repeats.
void DamageFields(google::protobuf::Message* message, std::mt19937& random);

// Fills `message` with fields by chance, `depth` levels of messages deep.
void FillByChance(google::protobuf::Message* message, std::mt19937& random, int depth = 4);

// Flips, cuts, repeats and inserts bytes.
std::string DamageBytes(std::string bytes, std::mt19937& random);

// `often` in every run; `always_and_long` with PLUMB_LONG=1.
int Rounds(int often, int in_long_runs);

}  // namespace plumbline::test
