//! Schedules on the wire.

use std::sync::Arc;

use contracts::tavern::workflow::v1::schedule_service_server::ScheduleService;
use contracts::tavern::workflow::v1::{
    DeleteScheduleRequest, DeleteScheduleResponse, GetScheduleRequest, GetScheduleResponse,
    ListScheduleTimesRequest, ListScheduleTimesResponse, ListSchedulesRequest,
    ListSchedulesResponse, PauseScheduleRequest, PauseScheduleResponse, PutScheduleRequest,
    PutScheduleResponse, ResumeScheduleRequest, ResumeScheduleResponse, TriggerScheduleRequest,
    TriggerScheduleResponse,
};
use core_types::page::page_size;
use core_types::{PageToken, Timestamp};
use grpc_kit::{CallContext, Failure};
use prost::Message;
use tonic::{Request, Response, Status};

use super::read_token;
use crate::runner::Inner;

/// The bytes of schedules after which a page ends, even if it has fewer entries than requested.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Answers calls about schedules.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleRpc {
    inner: Arc<Inner>,
}

impl ScheduleRpc {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

#[tonic::async_trait]
impl ScheduleService for ScheduleRpc {
    async fn put_schedule(
        &self,
        request: Request<PutScheduleRequest>,
    ) -> Result<Response<PutScheduleResponse>, Status> {
        let context = CallContext::of(&request);
        let PutScheduleRequest { schedule, etag } = request.into_inner();
        let schedule = schedule
            .ok_or_else(|| Failure::invalid_fields().violation("schedule", "is missing"))?;
        let schedule = self.inner.put_schedule(&context, schedule, &etag).await?;
        Ok(Response::new(PutScheduleResponse {
            schedule: Some(schedule),
        }))
    }

    async fn get_schedule(
        &self,
        request: Request<GetScheduleRequest>,
    ) -> Result<Response<GetScheduleResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let id = request.into_inner().schedule_id;
        let schedule = self.inner.schedule(tenant, &id).await?;
        Ok(Response::new(GetScheduleResponse {
            schedule: Some(schedule),
        }))
    }

    async fn list_schedules(
        &self,
        request: Request<ListSchedulesRequest>,
    ) -> Result<Response<ListSchedulesResponse>, Status> {
        let context = CallContext::of(&request);
        let list = grpc_kit::list_of(&context, "schedules");
        let request = request.into_inner();
        let after = read_token(&list, &request.page_token)?;
        let size = page_size(request.page_size);
        let mut following = self
            .inner
            .list_schedules(context.tenant(), &after, size + 1)
            .await?
            .into_iter();
        let (mut schedules, mut bytes) = (Vec::new(), 0);
        while schedules.len() < size && bytes < PAGE_BYTES {
            let Some(schedule) = following.next() else {
                break;
            };
            bytes += schedule.encoded_len();
            schedules.push(schedule);
        }
        let next_page_token = match (following.next(), schedules.last()) {
            (Some(_), Some(last)) => PageToken::after(&last.schedule_id).encode(&list),
            _ => String::new(),
        };
        Ok(Response::new(ListSchedulesResponse {
            schedules,
            next_page_token,
        }))
    }

    async fn delete_schedule(
        &self,
        request: Request<DeleteScheduleRequest>,
    ) -> Result<Response<DeleteScheduleResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let DeleteScheduleRequest { schedule_id, etag } = request.into_inner();
        let deleted = self.inner.delete_schedule(tenant, &schedule_id, &etag);
        deleted.await?;
        Ok(Response::new(DeleteScheduleResponse {}))
    }

    async fn pause_schedule(
        &self,
        request: Request<PauseScheduleRequest>,
    ) -> Result<Response<PauseScheduleResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let id = request.into_inner().schedule_id;
        let schedule = self.inner.pause_schedule(tenant, &id).await?;
        Ok(Response::new(PauseScheduleResponse {
            schedule: Some(schedule),
        }))
    }

    async fn resume_schedule(
        &self,
        request: Request<ResumeScheduleRequest>,
    ) -> Result<Response<ResumeScheduleResponse>, Status> {
        let tenant = CallContext::of(&request).tenant();
        let id = request.into_inner().schedule_id;
        let schedule = self.inner.resume_schedule(tenant, &id).await?;
        Ok(Response::new(ResumeScheduleResponse {
            schedule: Some(schedule),
        }))
    }

    async fn trigger_schedule(
        &self,
        request: Request<TriggerScheduleRequest>,
    ) -> Result<Response<TriggerScheduleResponse>, Status> {
        let context = CallContext::of(&request);
        let TriggerScheduleRequest {
            schedule_id,
            request_id,
        } = request.into_inner();
        let time = self
            .inner
            .trigger_schedule(&context, &schedule_id, &request_id)
            .await?;
        Ok(Response::new(TriggerScheduleResponse { time: Some(time) }))
    }

    async fn list_schedule_times(
        &self,
        request: Request<ListScheduleTimesRequest>,
    ) -> Result<Response<ListScheduleTimesResponse>, Status> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let list = format!("schedule_times/{}", request.schedule_id);
        let list = grpc_kit::list_of(&context, &list);
        let before = match read_token(&list, &request.page_token)?.as_str() {
            "" => i64::MAX,
            nanos => nanos.parse().map_err(|_| {
                Failure::invalid_fields().violation("page_token", "is not of this list")
            })?,
        };
        let size = page_size(request.page_size);
        let before = Timestamp::from_unix_nanos(before);
        let times = self
            .inner
            .schedule_times(&context, &request.schedule_id, before, size + 1);
        let mut times = times.await?;
        let more = times.len() > size;
        times.truncate(size);
        let next_page_token = match times.last().filter(|_| more) {
            Some((last, _)) => PageToken::after(last.unix_nanos().to_string()).encode(&list),
            None => String::new(),
        };
        Ok(Response::new(ListScheduleTimesResponse {
            times: times.into_iter().map(|(_, time)| time).collect(),
            next_page_token,
        }))
    }
}
