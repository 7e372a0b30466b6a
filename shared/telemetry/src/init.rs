//! The set-up of telemetry, and the guard that flushes it.

use std::{io::IsTerminal, sync::mpsc, time::Duration};

use opentelemetry::{KeyValue, global, trace::TracerProvider};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig,
};
use opentelemetry_sdk::{
    Resource,
    logs::SdkLoggerProvider,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    layer::{Identity, SubscriberExt},
    registry::LookupSpan,
    util::{SubscriberInitExt, TryInitError},
};

use crate::log_context::InSpanContext;
use crate::settings::{LogFormat, TelemetrySettings};

/// The instrumentation scope of all spans, metrics and logs of Tavern.
const SCOPE: &str = "tavern";

/// The longest that a dropped guard waits for its last export.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time that one export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The sources of logs about exporting, which must not be exported, or the exporter feeds itself.
const NEVER_EXPORTED: [&str; 9] = [
    "h2",
    "hyper",
    "hyper_util",
    "tonic",
    "tower",
    "reqwest",
    "opentelemetry",
    "opentelemetry_sdk",
    "opentelemetry_otlp",
];

/// Telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The exporter needs a runtime for its connection.
    #[error("telemetry with an OTLP endpoint must be set up inside a tokio runtime")]
    NoRuntime,
    /// An exporter refused its settings.
    #[error("the OTLP exporter for {signal} could not be built")]
    Exporter {
        /// Traces, metrics or logs.
        signal: &'static str,
        /// The cause.
        source: ExporterBuildError,
    },
    /// The log filter is wrong.
    #[error("the log filter is wrong")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Telemetry was set up before.
    #[error("telemetry is already set up in this process")]
    AlreadyInitialised(#[from] TryInitError),
}

/// Keeps telemetry running; ending it flushes what has not been exported yet.
#[derive(Debug)]
#[must_use = "dropping the guard ends telemetry"]
pub struct Guard {
    providers: Option<Providers>,
}

#[derive(Debug)]
struct Providers {
    tracer: SdkTracerProvider,
    meter: Option<SdkMeterProvider>,
    logger: Option<SdkLoggerProvider>,
}

/// Sets up logs, traces and metrics for the whole process.
///
/// # Errors
/// [`TelemetryError`]; no part is set up then.
pub fn init(
    settings: &TelemetrySettings,
    service_name: &'static str,
    service_version: &'static str,
) -> Result<Guard, TelemetryError> {
    let resource = Resource::builder()
        .with_service_name(service_name)
        .with_attribute(KeyValue::new("service.version", service_version))
        .build();
    let providers = Providers::build(settings, resource)?;
    let tracer = providers.tracer.tracer(SCOPE);
    let bridge = providers
        .logger
        .as_ref()
        .map(|logger| InSpanContext(OpenTelemetryTracingBridge::new(logger)))
        .map(|exporting| exporting.with_filter(exported()));
    tracing_subscriber::registry()
        .with(trace_layer(tracer))
        .with(bridge)
        .with(log_layer(settings)?)
        .try_init()?;
    global::set_tracer_provider(providers.tracer.clone());
    if let Some(meter) = &providers.meter {
        global::set_meter_provider(meter.clone());
    }
    Ok(Guard {
        providers: Some(providers),
    })
}

/// Gives every span of a test process its trace id. Exports and prints no records; may be called by
/// every test.
pub fn init_for_tests() {
    init_for_tests_with(Identity::new());
}

/// Does the same, and adds a layer of the test that receives the log. Only the first layer of a
/// process receives it.
pub fn init_for_tests_with(layer: impl Layer<Registry> + Send + Sync) {
    let provider = SdkTracerProvider::builder().build();
    let tracer = provider.tracer(SCOPE);
    // The first caller has set up the same, except for the layer.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(trace_layer(tracer))
        .try_init();
}

/// Returns the meter for Tavern's metrics; without an endpoint its instruments have no effect.
pub fn meter() -> opentelemetry::metrics::Meter {
    global::meter(SCOPE)
}

/// The layer that turns tracing's spans into OpenTelemetry's.
pub(crate) fn trace_layer<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // No code here reads the context of OpenTelemetry, only the context of tracing, so no poll
        // sets it.
        .with_context_activation(false)
        .with_filter(exported())
}

fn exported() -> Targets {
    Targets::new()
        .with_default(LevelFilter::INFO)
        .with_targets(NEVER_EXPORTED.map(|target| (target, LevelFilter::OFF)))
}

fn log_layer<S>(settings: &TelemetrySettings) -> Result<impl Layer<S>, TelemetryError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let filter = settings.filter()?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines: Box<dyn Layer<S> + Send + Sync> = match settings.log_format {
        LogFormat::Text => Box::new(lines),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_span_list(false)),
    };
    Ok(lines.with_filter(filter))
}

impl Providers {
    fn build(settings: &TelemetrySettings, resource: Resource) -> Result<Self, TelemetryError> {
        // A decision from upstream is kept, so that traces are whole.
        let sampler =
            Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio)));
        let tracer = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_resource(resource.clone());
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(Self {
                tracer: tracer.build(),
                meter: None,
                logger: None,
            });
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(TelemetryError::NoRuntime);
        }
        let failed = |signal| move |source| TelemetryError::Exporter { signal, source };
        let spans = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(failed("traces"))?;
        let metrics = MetricExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(failed("metrics"))?;
        let logs = LogExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(failed("logs"))?;
        let reader = PeriodicReader::builder(metrics)
            .with_interval(settings.metric_interval)
            .build();
        Ok(Self {
            tracer: tracer.with_batch_exporter(spans).build(),
            meter: Some(
                SdkMeterProvider::builder()
                    .with_reader(reader)
                    .with_resource(resource.clone())
                    .build(),
            ),
            logger: Some(
                SdkLoggerProvider::builder()
                    .with_batch_exporter(logs)
                    .with_resource(resource)
                    .build(),
            ),
        })
    }

    /// Flushes and ends all three; blocks. A receiver that knows no metrics or logs is no reason to
    /// fail at the end of a program, so failures are only reported.
    fn shutdown(self) {
        let results = [
            ("traces", Some(self.tracer.shutdown())),
            ("metrics", self.meter.map(|meter| meter.shutdown())),
            ("logs", self.logger.map(|logger| logger.shutdown())),
        ];
        for (signal, result) in results {
            if let Some(Err(error)) = result {
                tracing::warn!(signal, %error, "the last export failed");
            }
        }
    }
}

impl Guard {
    /// Exports the remaining records and ends telemetry.
    pub async fn shutdown(mut self) {
        if let Some(providers) = self.providers.take() {
            // Shutting down blocks while the exporter needs the runtime.
            let ended = tokio::task::spawn_blocking(move || providers.shutdown()).await;
            if let Err(error) = ended {
                tracing::warn!(%error, "ending telemetry failed");
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(providers) = self.providers.take() {
            let (ended, wait) = mpsc::channel();
            std::thread::spawn(move || {
                providers.shutdown();
                // The receiver may be gone.
                let _ = ended.send(());
            });
            let _ = wait.recv_timeout(DROP_TIMEOUT);
        }
    }
}
