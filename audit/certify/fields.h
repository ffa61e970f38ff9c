// Compares two messages of evidence field by field, by bits.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "audit/certify/side.h"
#include "audit/certify/tally.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::audit {

// Compares two dense tensors, element by element. An element's index goes to `place`.
void CompareTensors(const std::string& kind, const BitPlace& place, const v1::Tensor& a,
                    const v1::Tensor& b, Tally* tally);

// Compares all numbers, enumerations and tensors of two messages of one type. Words (names of
// libraries, reasons) go to the environment of each side. A part that only one side has is a gap
// that does not count against equality: runs measure in different steps.
void CompareFields(const std::string& kind, const BitPlace& place,
                   const google::protobuf::Message& a, const google::protobuf::Message& b,
                   Tally* tally, Environment* of_a, Environment* of_b);

}  // namespace plumbline::audit
