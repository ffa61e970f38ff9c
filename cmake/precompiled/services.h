// The same, and the services over them.
#pragma once
#include <grpcpp/grpcpp.h>

#include "cmake/precompiled/messages.h"
#include "plumbline/v1/ingest.grpc.pb.h"
#include "plumbline/v1/query.grpc.pb.h"
